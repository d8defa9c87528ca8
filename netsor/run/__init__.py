"""The lines of a program run on numpy arrays at a small finite width."""
