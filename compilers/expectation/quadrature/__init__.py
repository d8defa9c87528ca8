"""Gaussian expectations by rules in one, two and more dimensions."""
