"""Dimensions moved, read in parts and joined."""
