"""Statements of a plan → nests: what an element of each name is."""
