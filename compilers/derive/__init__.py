"""Program → Recursion: the C, D and tangent kernels of a program, line by line."""
