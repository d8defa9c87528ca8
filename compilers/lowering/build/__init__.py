"""Recursion → plan: every decision about what is computed, in which order and in whose memory."""
