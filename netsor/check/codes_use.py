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
        "values or names that cannot be used",
        "The data hold NaN or infinity, or a name is unknown.",
        "x[2, 0] = nan",
        _USE,
        "the message names the sample or the known names",
    ),
    Code(
        "NT604",
        "inputs that do not fit the program",
        "The inputs are not those of the program, or of other shapes.",
        "kernel(x)             # the program has inputs x and A",
        _USE,
        "give a dict from name to array",
    ),
    Code(
        "NT605",
        "an output or vector that does not exist",
        "What was asked for is no part of the program.",
        "kernel(x, get='h9')",
        _USE,
        "ask for a name that the program has",
    ),
    Code(
        "NT606",
        "too little memory",
        "The computation does not fit the budget.",
        "kernel.gram(x, memory='1MB')",
        _USE,
        "raise the budget to what the message says",
    ),
    Code(
        "NT607",
        "a value that cannot be used here",
        "The message says what is wrong with it.",
        "kernel.save('m.py')   # with a numeric function",
        _USE,
        "follow the message",
    ),
    Code(
        "NT608",
        "a simulation that is too large",
        "The matrices of this width exceed the memory.",
        "ns.simulate(p, x, widths=[2**17])",
        _USE,
        "use smaller widths",
    ),
    Code(
        "NT609",
        "a device that cannot be used",
        "The device does not exist on this machine.",
        "ns.compile(p, device='cuda:7')",
        _USE,
        "device='cpu'",
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
        "a limit without a rule here",
        "The limit may exist, but this way of computing it has no rule for it.",
        "an expectation over many dependent Gaussians",
        "the expectations page",
        "sample it: samples=",
    ),
    Code(
        "NT703",
        "no deterministic limit of this form",
        "The construction has no limit that a program expresses.",
        "attention with scores scaled by 1/√n",
        "the layers pages",
        "scores q·k/n",
    ),
)
