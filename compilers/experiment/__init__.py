"""Simulations: kernels at finite width over widths and seeds, against the limit."""
