"""A listing's text → a program."""
