"""NT6xx and NT7xx: arrays and arguments that do not fit a program, and limits without a rule."""

from __future__ import annotations

from netsor.checker.codes.explanation import Code

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
        "NT612",
        "a second derivative that is infinite",
        "The kernel of a function with a kink has a cone where two inputs are equal or opposite, or one is zero: the"
        " first derivative there is the symmetric one, the second is infinite.",
        "torch.func.hessian of a relu network's NTK at x2 = x1",
        "the page on compiled kernels",
        "leave such pairs out, or take a smooth function",
    ),
    Code(
        "NT613",
        "bytes used as numbers",
        "A warning: the array holds bytes (uint8), as images do, and their values 0 … 255 are used as they are.",
        "kernel(images)        # uint8",
        _USE,
        "divide by 255; give floats where the values are meant",
    ),
    Code(
        "NT614",
        "channels in front",
        "A warning: the array has the shape of images [n, channel, row, col], and the program reads the channels last.",
        "kernel(images)        # [n, 3, 32, 32]",
        _USE,
        "images.permute(0, 2, 3, 1)",
    ),
    Code(
        "NT615",
        "a matrix that is no covariance",
        "A covariance matrix is symmetric and positive semidefinite; 1e-6 of its largest entry counts as rounding.",
        "ns.v_transform('relu', [[1, 2], [2, 1]])",
        "Tensor Programs II, Definition E.1",
        "the message names the smallest eigenvalue",
    ),
    Code(
        "NT616",
        "an argument of another kind",
        "A program, a function or a number of layers was expected.",
        "ns.compile(torch.nn.Linear(3, 4))\nns.programs.mlp(phi=torch.relu)",
        _USE,
        "write what the message proposes",
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
