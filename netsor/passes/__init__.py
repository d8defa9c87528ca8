"""Program → Program: the backward pass, families unrolled, unit variances."""
