"""Kernels of inputs with axes as C: one pair of inputs in each lane of a vector, one after the other at all positions.

    plan  →  fields: what an element is, at any index          statements.py, fields.py, index.py
          →  nests: loops over positions, level by level       nests.py, sums.py
          →  memory: which tensors stand in whose place        memory.py
          →  C text → library → blocks                         text.py, library.py, blocks.py

Sizes of axes are numbers in the text, so that a library serves inputs of its sizes only. Views, fits and gathers are
arithmetic of indices; arithmetic of what is alike stands in one nest, so that all of a layer is computed in registers.
"""
