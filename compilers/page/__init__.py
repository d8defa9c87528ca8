"""A program on one page: its lines, its check, its recursion, its cost, its source and its convergence, as HTML."""

from netsor.compilers.page.document import page as page
