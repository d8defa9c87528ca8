"""Kernels of pairs on a GPU: the bodies of `native.pairs` as CUDA C, a thread for each pair.

    body of instructions  →  CUDA C  →  launches
    native.pairs             text.py    library.py

Gram matrices of blocks come from torch; all layers of a pair are one kernel, whose numbers stay in registers. Nothing
is asked of the device within a band. The text is printed from the instructions of the CPU's, and the same functions,
compiled as plain C, are what tests run: there it has been checked, on a GPU by `benchmarks/gpu.py` alone.
"""
