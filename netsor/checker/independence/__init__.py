"""BP-like, Simple GIA and gia_valid (Definition A.3, Condition 1)."""
