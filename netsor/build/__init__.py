"""Programs written in Python: the builder, pending expressions, recurrences, windows."""
