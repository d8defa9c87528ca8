"""A plan as the text of a torch module."""
