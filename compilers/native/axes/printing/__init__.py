"""Nests → C text."""
