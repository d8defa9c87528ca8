"""E F(u) for jointly Gaussian u as an exact sympy expression.

F is written as a sum of terms c · Π uᵢ^pᵢ · exp(linear − quadratic) · gates, a gate being sgn(uⱼ) or an erf, which is
S_τ(u) = E sgn(u + √τ n) with n ~ N(0, 1) and τ = 0 or τ > 0. Exponentials change the law; powers are lowered by
Stein's lemma E[uᵢ G] = E uᵢ E G + Σⱼ Cov(uᵢ, uⱼ) E ∂ⱼG, where ∂S_τ is 2 × the density of u + √τ n at 0; what is left
are gates alone,

    E S_σ(u) S_τ(v) = (2/π) asin(c / √((a + σ)(b + τ))),      E S_τ(u) = erf(m / √(2 (a + τ))),

the first for mean zero. So relu, step, abs, leaky relu, sign, erf, gelu, exp, sin, cos, gaussian, polynomials and their
products have closed forms with at most two gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy as sp

from netsor.errors import UnsupportedError
from netsor.functions import Head, write_out

Matrix = tuple[tuple[sp.Expr, ...], ...]
Vector = tuple[sp.Expr, ...]
Gate = tuple[int, sp.Expr]  # variable, noise τ


def expectation(f: sp.Expr, variables: Sequence[sp.Symbol], cov: Sequence[Sequence[sp.Expr]], mean: Vector) -> sp.Expr:
    """E f for variables with a covariance matrix and means."""
    try:
        return _expectation(f, variables, cov, mean)
    except _Unknown:
        raise unknown(f) from None


class _Unknown(Exception):
    """A term without a closed form."""


def _expectation(f: sp.Expr, variables: Sequence[sp.Symbol], cov: Sequence[Sequence[sp.Expr]], mean: Vector) -> sp.Expr:
    """Degenerate laws are reduced first; the closed form is found once for all covariances."""
    f, kept = _reduced(elementary(f), list(variables), cov, mean)
    if not kept:
        return f
    symbols = _law_symbols(len(kept), tuple(mean[i] != 0 for i in kept))
    general = _general(f, tuple(variables[i] for i in kept), symbols)
    table = {symbols.cov[a][b]: cov[i][j] for a, i in enumerate(kept) for b, j in enumerate(kept) if a <= b}
    table |= {symbols.mean[a]: mean[i] for a, i in enumerate(kept) if mean[i] != 0}
    return general.xreplace(table)


# ---------------------------------------------------------------- laws


@dataclass(frozen=True)
class Law:
    """N(mean, cov)."""

    cov: Matrix
    mean: Vector

    def observed(self, j: int, noise: sp.Expr) -> tuple[sp.Expr, Law]:
        """The density at 0 of u_j + √noise·n, and the law of u given that it is 0."""
        total = sp.together(self.cov[j][j] + noise)
        k = range(len(self.mean))
        cov = tuple(tuple(sp.together(self.cov[a][b] - self.cov[a][j] * self.cov[b][j] / total) for b in k) for a in k)
        mean = tuple(sp.together(self.mean[a] - self.mean[j] * self.cov[a][j] / total) for a in k)
        density = sp.exp(-(self.mean[j] ** 2) / (2 * total)) / sp.sqrt(2 * sp.pi * total)
        return density, Law(cov, mean)

    def tilted(self, linear: Vector) -> tuple[sp.Expr, Law]:
        """E exp(linear·u), and the law with density ∝ exp(linear·u)."""
        k = range(len(self.mean))
        shift = tuple(sp.Add(*(self.cov[a][b] * linear[b] for b in k)) for a in k)
        exponent = sp.Add(*(linear[a] * (self.mean[a] + shift[a] / 2) for a in k))
        return sp.exp(sp.expand(exponent)), Law(self.cov, tuple(m + s for m, s in zip(self.mean, shift, strict=True)))


@lru_cache(maxsize=64)
def _law_symbols(k: int, has_mean: tuple[bool, ...]) -> Law:
    def entry(i: int, j: int) -> sp.Symbol:
        return sp.Dummy(f"k{i}{j}", positive=True) if i == j else sp.Dummy(f"k{i}{j}", real=True)

    upper = {(i, j): entry(i, j) for i in range(k) for j in range(i, k)}
    cov = tuple(tuple(upper[min(i, j), max(i, j)] for j in range(k)) for i in range(k))
    return Law(cov, tuple(sp.Dummy(f"m{i}", real=True) if m else sp.Integer(0) for i, m in enumerate(has_mean)))


def _reduced(
    f: sp.Expr, variables: list[sp.Symbol], cov: Sequence[Sequence[sp.Expr]], mean: Vector
) -> tuple[sp.Expr, list[int]]:
    """Variables without variance, or equal or opposite to an earlier one, are put into f."""
    kept: list[int] = []
    for j, z in enumerate(variables):
        if _same(cov[j][j], sp.Integer(0)):
            f = f.subs(z, mean[j])
            continue
        twin = next(((i, s) for i in kept for s in (1, -1) if _linked(cov, i, j, s)), None)
        if twin is None:
            kept.append(j)
        else:
            i, s = twin
            f = f.subs(z, sp.expand(mean[j] + s * (variables[i] - mean[i])))
    return f, kept


def _linked(cov: Sequence[Sequence[sp.Expr]], i: int, j: int, sign: int) -> bool:
    return _same(cov[i][i], cov[j][j]) and _same(cov[i][i], sign * cov[i][j])


def _same(a: sp.Expr, b: sp.Expr) -> bool:
    """Equality by structure, up to multiplying out; numbers that differ are told apart by value."""
    if a == b:
        return True
    if a.is_number and b.is_number and abs(complex(sp.N(a - b, 15))) > 1e-9:
        return False
    return bool(sp.expand(a - b) == 0)


# ---------------------------------------------------------------- integrands


def elementary(f: sp.Expr) -> sp.Expr:
    """f in powers, exponentials, sgn and erf."""
    f = write_out(f)
    if f.atoms(Head):
        raise _Unknown
    f = f.replace(sp.Heaviside, lambda x, *_: (1 + sp.sign(x)) / 2)
    f = f.replace(sp.sin, lambda x: (sp.exp(sp.I * x) - sp.exp(-sp.I * x)) / (2 * sp.I))
    return f.replace(sp.cos, lambda x: (sp.exp(sp.I * x) + sp.exp(-sp.I * x)) / 2)


def unknown(f: sp.Expr) -> UnsupportedError:
    return UnsupportedError(
        f"no closed form for the Gaussian expectation of {f}", code="NT702",
        hint="relu, step, abs, leaky_relu, sign, erf, gelu, exp, sin, cos, gaussian and polynomials have one; "
        "ns.compile computes the others as numbers",
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _general(f: sp.Expr, variables: tuple[sp.Symbol, ...], law: Law) -> sp.Expr:
    """E f in the symbols of a law."""
    total = sp.Add(*(_term(t, variables, law) for t in sp.Add.make_args(sp.expand(f))))
    return sp.expand(total.replace(sp.exp, _euler)) if total.has(sp.I) else multiplied_out(total)


def multiplied_out(e: sp.Expr) -> sp.Expr:
    """Sums and products expanded; roots, quotients and functions left as they are."""
    frozen: dict[sp.Expr, sp.Dummy] = {}

    def freeze(x: sp.Expr) -> sp.Expr:
        if x.is_Add or x.is_Mul:
            return x.func(*map(freeze, x.args))
        if x.is_Atom or (x.is_Pow and x.exp.is_Integer and x.exp > 0):
            return x
        return frozen.setdefault(x, sp.Dummy())

    return sp.expand(freeze(e)).xreplace({d: x for x, d in frozen.items()})


def _euler(exponent: sp.Expr) -> sp.Expr:
    """exp(x + iy) = exp(x) (cos y + i sin y)."""
    angle = sp.expand(exponent).coeff(sp.I)
    return sp.exp(sp.expand(exponent - sp.I * angle)) * (sp.cos(angle) + sp.I * sp.sin(angle))


class _Term:
    """One product, sorted into coefficient, powers, exponent and gates."""

    def __init__(self, term: sp.Expr, variables: tuple[sp.Symbol, ...]) -> None:
        self.variables = variables
        self.coefficient: sp.Expr = sp.Integer(1)
        self.powers = [0] * len(variables)
        self.linear = [sp.Integer(0)] * len(variables)
        self.quadratic = [sp.Integer(0)] * len(variables)
        self.gates: list[Gate] = []
        for factor in sp.Mul.make_args(term):
            self._factor(factor)

    def _factor(self, factor: sp.Expr) -> None:
        base, power = factor.as_base_exp() if not isinstance(factor, sp.exp) else (factor, sp.Integer(1))
        if not factor.has(*self.variables):
            self.coefficient *= factor
        elif isinstance(base, sp.exp):
            self._exponent(base.args[0] * power)
        elif not (power.is_Integer and power > 0):
            raise _Unknown
        elif base in self.variables:
            self.powers[self.variables.index(base)] += int(power)
        elif isinstance(base, sp.sign | sp.erf):
            for _ in range(int(power)):
                self._gate(base)
        else:
            raise _Unknown

    def _exponent(self, exponent: sp.Expr) -> None:
        poly = sp.Poly(exponent, *self.variables) if exponent.is_polynomial(*self.variables) else None
        if poly is None:
            raise _Unknown
        for degrees, c in poly.terms():
            if sum(degrees) == 0:
                self.coefficient *= sp.exp(c)
            elif sum(degrees) == 1:
                self.linear[degrees.index(1)] += c
            elif 2 in degrees and sum(degrees) == 2:
                self.quadratic[degrees.index(2)] -= c
            else:
                raise _Unknown

    def _gate(self, gate: sp.Expr) -> None:
        scale, z = gate.args[0].as_independent(*self.variables, as_Add=False)
        sign = 1 if scale.is_positive else -1 if scale.is_negative else 0
        if z not in self.variables or not sign:
            raise _Unknown
        self.coefficient *= sign
        found = (self.variables.index(z), sp.Integer(0) if isinstance(gate, sp.sign) else 1 / (2 * scale**2))
        if found[1] == 0 and found in self.gates:
            self.gates.remove(found)  # sgn² = 1
        else:
            self.gates.append(found)


def _term(term: sp.Expr, variables: tuple[sp.Symbol, ...], law: Law) -> sp.Expr:
    t = _Term(term, variables)
    factor = t.coefficient
    for j, q in enumerate(t.quadratic):
        if q != 0:  # exp(−q u²) is √(2πτ) × the density of u + √τ n at 0, τ = 1/(2q)
            density, law = law.observed(j, 1 / (2 * q))
            factor *= density * sp.sqrt(sp.pi / q)
    if any(a != 0 for a in t.linear):
        growth, law = law.tilted(tuple(t.linear))
        factor *= growth
    return factor * _moment(law, tuple(t.powers), tuple(t.gates))


def _moment(law: Law, powers: tuple[int, ...], gates: tuple[Gate, ...]) -> sp.Expr:
    """E Π uᵢ^pᵢ · gates, by Stein's lemma."""
    i = next((i for i, p in enumerate(powers) if p), None)
    if i is None:
        return _gates_alone(law, gates)
    lower = _less(powers, i)
    total = law.mean[i] * _moment(law, lower, gates) if law.mean[i] != 0 else sp.Integer(0)
    for j, c in enumerate(law.cov[i]):
        if c == 0:
            continue
        if lower[j]:
            total += c * lower[j] * _moment(law, _less(lower, j), gates)
        for k, (at, noise) in enumerate(gates):
            if at == j:
                density, given = law.observed(j, noise)
                total += 2 * c * density * _moment(given, lower, gates[:k] + gates[k + 1 :])
    return total


def _less(powers: tuple[int, ...], i: int) -> tuple[int, ...]:
    return (*powers[:i], powers[i] - 1, *powers[i + 1 :])


def _gates_alone(law: Law, gates: tuple[Gate, ...]) -> sp.Expr:
    spread = [law.cov[j][j] + noise for j, noise in gates]
    centred = all(law.mean[j] == 0 for j, _ in gates)
    if centred and (len(gates) % 2 or 0 in spread):
        return sp.Integer(0)
    if len(gates) == 0:
        return sp.Integer(1)
    if len(gates) == 1:
        return sp.erf(law.mean[gates[0][0]] / sp.sqrt(2 * spread[0]))
    if len(gates) > 2 or not centred:
        raise _Unknown
    (i, s), (j, t) = gates
    cosine = law.cov[i][j] / sp.sqrt(spread[0] * spread[1])
    if s == t == 0:
        return 1 - 2 * sp.acos(cosine) / sp.pi
    return 2 * sp.asin(cosine) / sp.pi
