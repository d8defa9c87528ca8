"""How variables behave under sign flips of input vectors: parity, dependence, GF(2)."""
