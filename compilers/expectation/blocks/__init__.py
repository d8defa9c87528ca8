"""Expectations of whole blocks of pairs: few passes, memory used again."""
