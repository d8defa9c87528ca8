"""Mehler's series and operator, and what inputs share by interpolation."""
