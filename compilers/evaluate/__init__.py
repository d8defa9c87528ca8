"""Arrays in, blocks of pairs, results out."""
