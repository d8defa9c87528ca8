"""Recursion → a readable torch module."""
