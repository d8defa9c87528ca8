"""C text of pairs without axes."""
