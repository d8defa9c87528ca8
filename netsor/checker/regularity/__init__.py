"""Growth, parameter control and rank stability (Corollary 7.3, Definitions B.5 and B.7)."""
