"""NT6xx and NT7xx: arrays and arguments that do not fit a program, and limits without a rule."""

from __future__ import annotations

from netsor.check.code import Code

_USE = "the quick start"

ARRAYS = (
    Code(
        "NT601",
        "an array of the wrong rank or kind",
        "Data come as [sample, *axes, feature].",
        "kernel(x[0])          # one sample without its axis",
        _USE,
        "add the missing axis",
    ),
    Code(
        "NT602",
        "sizes that differ",
        "Axes of one name, and the numbers of samples, agree.",
        "kernel({'x': x, 'mask': mask[:3]})",
        _USE,
        "make the sizes agree; a ragged batch is a list of arrays",
    ),
    Code(
        "NT603",
        "numbers that are not finite",
        "The data hold NaN or infinity.",
        "x[2, 0] = nan",
        _USE,
        "the message names the sample",
    ),
    Code(
        "NT604",
        "inputs that do not fit the program",
        "Inputs are missing, unknown, or one array was given to a program with several inputs.",
        "kernel(x)             # the program has inputs x and A",
        _USE,
        "give a dict from name to array",
    ),
    Code(
        "NT605",
        "an output or vector that does not exist",
        "The output, vector, scalar or readout that was asked for is no part of the program.",
        "kernel(x, get='h9')",
        _USE,
        "ask for a name that the program has",
    ),
    Code(
        "NT606",
        "too little memory",
        "The computation, or the matrices of a simulation, exceed the budget.",
        "kernel.gram(x, memory='1MB')",
        _USE,
        "raise the budget to what the message says",
    ),
    Code(
        "NT607",
        "a readout that is no input vector",
        "The finite network takes the output's readout from the vectors that it samples.",
        "p.output(W @ u, x)",
        _USE,
        "make it with p.readout",
    ),
    Code(
        "NT609",
        "a device or dtype that cannot be used",
        "The device does not exist on this machine, or the dtype is neither float32 nor float64.",
        "ns.compile(p, device='cuda:7')",
        _USE,
        "device='cpu', dtype='float64'",
    ),
    Code(
        "NT610",
        "a batch of identical rows",
        "Batch normalisation with eps = 0 divides by the spread of the batch, which is zero.",
        "batchnorm_mlp(eps=0) on a batch of equal rows",
        "errata to E.4",
        "give eps a positive value",
    ),
    Code(
        "NT611",
        "an NTK that is infinite",
        "With eps = 0 the backward kernel of batch normalisation diverges on batches of rank below three.",
        "batchnorm_mlp(eps=0) on a batch of two",
        "errata to E.4",
        "give eps a positive value, or ask for the NNGP only",
    ),
    Code(
        "NT620",
        "a training kernel that is not positive semidefinite",
        "Its smallest eigenvalue is negative beyond rounding: a sampled kernel, or float32 inputs that coincide.",
        "ns.predict(kernel, x_float32, y)",
        "the predictions page",
        "give diag_reg, or float64 inputs",
    ),
    Code(
        "NT621",
        "an argument of a prediction",
        "Times are at least 0; gradient descent takes steps and a learning rate below the one at which it diverges.",
        "predictor.ensemble(x, steps=10, learning_rate=1e9)",
        "the predictions page",
        "predictor.max_learning_rate",
    ),
    Code(
        "NT630",
        "an argument of training",
        "Steps, rates, batches, the loss, targets or names of arrays do not fit the program or its samples.",
        "ns.train(p, x, y, steps=3, lr=0.1, batches=[[0, 99]])",
        "the training page",
        "the message says what fits",
    ),
    Code(
        "NT631",
        "nothing to train",
        "Every array is frozen or has trainable=False.",
        "ns.train(p, x, y, steps=3, lr=0.1, freeze=('W1', 'v'))",
        "the training page",
        "leave one array to train",
    ),
    Code(
        "NT632",
        "an output with axes cannot be trained",
        "A loss is a function of one number per sample and output; the output has an axis besides.",
        "ns.train(programs.batchnorm_mlp(), x, y, steps=3, lr=0.1)",
        "the training page",
        "sum or average over the axis, or give every class its own output",
    ),
    Code(
        "NT633",
        "training diverged",
        "The outputs overflow after the step that is named.",
        "ns.limit(ns.train(p, x, y, steps=50, lr=1e3)).scalar('f[50]')",
        "the training page",
        "take a smaller learning rate",
    ),
)

RULES = (
    Code(
        "NT701",
        "a function without a rule",
        "The function cannot be written in the form that is asked for.",
        "data passed through an unknown function",
        "the expectations page",
        "write it with the functions of the language",
    ),
    Code(
        "NT702",
        "a limit without an exact rule",
        "The limit may exist, but this way of computing it has no rule for it. A compiled kernel samples it instead;"
        " its formula, source, closed form or reference value cannot be written.",
        "ns.compile(programs.lstm()).source",
        "the expectations page",
        "call the kernel: samples=, tol= and seed= of ns.compile",
    ),
    Code(
        "NT703",
        "no deterministic limit of this form",
        "The construction has no limit that a program expresses.",
        "attention with scores scaled by 1/√n, dropout",
        "the layers pages",
        "scores q·k/n",
    ),
)
