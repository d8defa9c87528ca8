"""Kernels of the network at a step: of its features, of its gradients (the NTK), and their alignment with the targets.

With dy := n ∂f/∂y for every vector y of a step, n the width of the readout,

    Θ(ξ, ξ′) = n Σ ⟨∂f(ξ)/∂ω, ∂f(ξ′)/∂ω⟩ over the trained arrays
             = Σ_W multiplier² (rows/n) Σ_{uses, uses′} moment(dh dh′) moment(x x′)
             + Σ_b multiplier² (rows/n) moment(db db′),

so that a step of rate η moves f by −η Σ Θ χ to first order in η, and Θ of step 0 is the NTK of `ns.compile`. The
gradients of single samples are the backward lines without their sums over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from netsor import ir
from netsor.build import constants
from netsor.build.constants import free_name
from netsor.build.expressions import Expr
from netsor.build.program import Program, moment
from netsor.facts import ratio
from netsor.functions import exact
from netsor.passes.sgd.base import Base
from netsor.passes.sgd.history import gathered, renamed

Vars = Mapping[ir.Var, ir.Var]
Block = Callable[..., None]


class Kernels:
    """Writes the kernels of a step; `targets` are y `[sample, class]` on the training samples, None when all are 0."""

    def __init__(self, base: Base, p: Program, targets: Expr | None) -> None:
        self.base, self.p, self.targets = base, p, targets
        self.count = cast(int, base.sample.size)
        self.others: dict[ir.Axis, ir.Axis] = {}
        classes = base.classes
        self.copy = None if classes is None else p.fresh_axis(f"{classes.name}_out", classes.size)
        self.kept = (base.sample,) if self.copy is None else (base.sample, self.copy)
        self.first: dict[str, Expr] = {}  # of the first step that has them
        self.chi = self._seed()

    def write(self, t: int, now: Vars, block: Block) -> None:
        """`features[t]`, `ntk[t]`, and of both the alignment with the targets and the cosine with the first step's."""
        for name, kernel in (("features", self._features(t, now)), ("ntk", self._ntk(t, now, block))):
            self._return(name, t, kernel)
            if self.targets is not None:
                self._return(f"{name}_alignment", t, self._alignment(kernel))
            if name in self.first:
                self._return(f"{name}_cosine", t, self._cosine(kernel, self.first[name]))
            self.first.setdefault(name, kernel)

    def _return(self, name: str, t: int, value: Expr) -> None:
        self.p.returns(f"{name}[{t}]", self.p.let(free_name(self.p, f"{name}_t{t}"), value))

    # ------------------------------------------------------------ features

    def _features(self, t: int, now: Vars) -> Expr:
        """Σ moment(x x′) over the vectors that readouts read, averaged over the readouts' axes."""
        sample, total = self.base.sample, None
        for x, axes in self.base.features:
            z = cast(Expr, self.p.handle(now[x]))
            if sample not in z.axes:
                z = z * constants.one(self.p, ir.Dim(sample, self.count))
            part = moment(z * renamed(z, {sample: self._other(sample)}))
            part = part.mean(*axes) if axes else part
            total = part if total is None else total + part
        return self._ordered(cast(Expr, total))

    # ------------------------------------------------------------ the NTK

    def _ntk(self, t: int, now: Vars, block: Block) -> Expr:
        gradients, total = self._gradients(t, now, block), None
        for line in self.base.trained:
            part = self._of_array(line, now, gradients)
            if part is not None:
                part = part * (self.base.square(line) * exact(ratio(line.out.rows)) / exact(ratio(self.base.width)))
                total = part if total is None else total + part
        return self._ordered(cast(Expr, total))

    def _gradients(self, t: int, now: Vars, block: Block) -> Vars:
        """n ∂f/∂y by sample (and class, along a second axis): the backward lines from χ = 1, no sample summed."""
        base = self.base
        own = tuple(ir.Dim(a, cast(int, a.size)) for a in self.kept)
        found: dict[ir.Var, ir.Var] = {base.chi: self.chi}

        def dims(v: ir.Var) -> tuple[ir.Dim, ...]:
            return (*v.dims, *(d for d in own if v in base.seeded and d.axis not in v.axes))

        def read(v: ir.Var) -> ir.Var:
            return found[v] if v in found else now[v]

        lines = [x for x in base.backward if x.out in base.moving or base.sample in x.out.axes]
        block(lines, f"_f_t{t}", dims, read, found, summed=base.summed)
        return found

    def _seed(self) -> ir.Var:
        """1 for every sample, or δ(class, class′)."""
        p, base = self.p, self.base
        seed = constants.one(p, ir.Dim(base.sample, self.count))
        if base.classes is not None and self.copy is not None:
            one, two = (ir.Dim(a, cast(int, a.size)) for a in (base.classes, self.copy))
            seed = p.let(free_name(p, "chi_f"), seed * constants.delta(p, one, two))
        return seed.var

    def _of_array(
        self, line: ir.InputMatrix | ir.InputVector, now: Vars, gradients: Vars
    ) -> Expr | None:  # fmt: skip
        """Σ moment(db db′) of a vector, Σ moment(dh dh′) moment(x x′) of a matrix's uses; None without gradients."""
        handle, base = self.p.handle, self.base
        sides: list[tuple[Expr, ...]]
        if isinstance(line, ir.InputVector):
            sides = [(handle(gradients[base.gradients[line.out]]),)] if line.out in base.gradients else []
        else:
            found = [u for u in base.uses(line) if u.out in base.gradients]
            sides = [(handle(gradients[base.gradients[u.out]]), handle(now[u.vector])) for u in found]
            sides = [pair[::-1] if base.roots[u.matrix][1] else pair for pair, u in zip(sides, found, strict=True)]
        total: Expr | None = None
        for one in sides:
            for two in sides:
                part = self._met(one, two, line.out.axes)
                total = part if total is None else total + part
        return total

    def _met(self, one: tuple[Expr, ...], two: tuple[Expr, ...], own: tuple[ir.Axis, ...]) -> Expr:
        """Π moment(z z′), summed over all axes but samples and classes; the array's own axes meet on the diagonal."""
        kept = self.kept
        product: Expr | None = None
        summed = dict.fromkeys(own)
        for x, y in zip(one, two, strict=True):
            table = {a: self._other(a) for a in y.axes if a not in own}
            factor = moment(x * (renamed(y, table) if table else y))
            summed |= dict.fromkeys(a for a in x.axes if a not in kept)
            summed |= dict.fromkeys(table[a] for a in y.axes if a not in (*kept, *own))
            product = factor if product is None else product * factor
        found = cast(Expr, product)
        return found.sum(*summed) if summed else found

    def _other(self, axis: ir.Axis) -> ir.Axis:
        if axis not in self.others:
            self.others[axis] = self.p.fresh_axis(f"{axis.name}_2", axis.size)
        return self.others[axis]

    # ------------------------------------------------------------ kernels as a whole

    def _ordered(self, kernel: Expr) -> Expr:
        """A line with the axes in the order sample, sample′, class, class′."""
        p, dims = self.p, {d.axis: d for d in kernel.dims}
        wanted = [b for a in self.kept for b in (a, self._other(a))]
        args, params = p.split(kernel.sym)
        out = p.new_var(None, "C", None, None, tuple(dims[a] for a in wanted if a in dims))
        return p.add(ir.Moment(out, p.positional(kernel.sym, args, params), args, params))

    def _cosine(self, a: Expr, b: Expr) -> Expr:
        """⟨A, B⟩_F/(‖A‖_F ‖B‖_F)"""
        return (a * b).sum(*a.axes) / ((a**2).sum(*a.axes) * (b**2).sum(*b.axes)).sqrt()

    def _alignment(self, kernel: Expr) -> Expr:
        """The cosine of K and y yᵀ on the training samples, y yᵀ summed over the classes where K has none."""
        y, k, base = cast(Expr, self.targets), kernel, self.base
        (train,) = (a for a in y.axes if a != base.classes)
        if train != base.sample:
            for axis, into in ((base.sample, train), (self._other(base.sample), self._other(train))):
                k = gathered(k, axis, tuple(range(base.count)), into)
        if base.classes is None or self.copy is None:
            return self._cosine(k, y * renamed(y, {train: self._other(train)}))
        if self.copy not in k.axes:
            return self._cosine(k, (y * renamed(y, {train: self._other(train)})).sum(base.classes))
        y = renamed(y, {base.classes: self.copy})
        return self._cosine(k, y * renamed(y, {a: self._other(a) for a in y.axes}))
