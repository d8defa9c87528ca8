"""What a program means, and how it is computed."""
