"""Types, dimensions, order and widths of lines (Definition A.1, Appendix C)."""
