"""Blocks of kernels on the CPU by one C function, printed from a plan and compiled by the machine's C compiler.

    plan  →  body of instructions  →  C text  →  library  →  blocks
    pairs.py, expectations.py         text.py    compiler.py  blocks.py

Gram matrices of data come from torch. All else of a pair is computed in one pass over strips of pairs in cache: the
formulas of `expectation.blocks.fused` and Mehler's series, whose coefficients belong to one input each.
"""
