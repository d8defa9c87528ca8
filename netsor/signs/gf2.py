"""Linear algebra over GF(2); vectors are integers, bit i is coordinate i."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Basis = tuple[int, ...]  # reduced: leading bits are distinct and decreasing


def dot(a: int, b: int) -> int:
    return (a & b).bit_count() & 1


def reduce(basis: Basis, v: int) -> int:
    """v modulo the span of the basis."""
    for b in basis:
        if v ^ b < v:
            v ^= b
    return v


def extend(basis: Basis, vectors: Iterable[int]) -> Basis:
    """A basis of the span of both."""
    for v in vectors:
        rest = reduce(basis, v) if v else 0
        if rest:
            lead = 1 << (rest.bit_length() - 1)
            basis = tuple(sorted((*(b ^ rest if b & lead else b for b in basis), rest), reverse=True))
    return basis


def nullspace(equations: Iterable[int], bits: int) -> list[int]:
    """Generators of {s : e·s = 0 for all equations}, s over the first `bits` coordinates."""
    basis = extend((), equations)
    leads = {b.bit_length() - 1: b for b in basis}
    result = []
    for free in range(bits):
        if free in leads:
            continue
        s = 1 << free
        for lead, b in leads.items():
            if b >> free & 1:
                s |= 1 << lead
        result.append(s)
    return result


def solve(equations: Sequence[tuple[int, int]], bits: int) -> int | None:
    """One s with e·s = c for all (e, c), free coordinates 0; None when there is none."""
    constant = 1 << bits
    rows = extend((), (_swap(e | (constant if c else 0), bits) for e, c in equations))
    s = 0
    for row in rows:
        row = _unswap(row, bits)
        if row == constant:
            return None
        lead = row & ~constant
        lead = lead & -lead
        if row & constant:
            s |= lead
    return _back_substitute(rows, bits, s)


def _swap(v: int, bits: int) -> int:
    """Reverse the bit order, so that the constant is the lowest and never leads a solvable row."""
    return int(format(v, f"0{bits + 1}b")[::-1], 2)


def _unswap(v: int, bits: int) -> int:
    return _swap(v, bits)


def _back_substitute(rows: Basis, bits: int, s: int) -> int | None:
    """Rows are fully reduced (each lead occurs once), so with free coordinates 0 a lead equals its constant."""
    constant = 1 << bits
    for row in rows:
        equation = _unswap(row, bits)
        if dot(equation & ~constant, s) != (1 if equation & constant else 0):
            return None
    return s
