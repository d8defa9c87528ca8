"""A program with all its names changed, and names that are hard to hold.

`renamed` gives a program that differs from another by names only: program, widths, axes, variables, functions, outputs
and returned scalars. Lines without a name keep their numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st

import netsor as ns
from netsor import ir
from netsor.compilers.derive.entries.labels import is_named
from netsor.functions import Function, Head

Kind = str  # "program" | "width" | "axis" | "variable" | "function" | "output" | "returned"
Naming = Callable[[Kind, str], str]

SIDE_EFFECT = "__import__('sys').__dict__.__setitem__('netsor_was_here', 1)"
HOSTILE = (
    SIDE_EFFECT, f"x if 0 else {SIDE_EFFECT} or x.x", f'"] + {SIDE_EFFECT} + ["', f"'] + {SIDE_EFFECT} + ['",
    f"q=1) or {SIDE_EFFECT} or dict(r", f'""" + {SIDE_EFFECT} + """', f"''' + {SIDE_EFFECT} + '''", "# comment",
    "a\\", "\\", "'", '"', '"""', "'''", "{x}", "{0}", "%s", "$(id)", "$", "$\\frac$", "<script>alert(1)</script>",
    "&lt;", "::error::x", "%0A", "../../etc/passwd", "a/b", "a\\b", "..", ".", "C:x", "-", " ", "a b", " a", "a-b",
    "a_b", "a.b", "terms.W", "1", "0x", "class", "def", "lambda", "import", "None", "True", "match", "case", "type",
    "_", "__", "__init__", "__class__", "__builtins__", "print", "eval", "list", "abs", "max", "sum", "id", "math",
    "torch", "rt", "runtime", "np", "netsor", "PROGRAM", "INPUTS", "GET", "SOURCE", "NUMERIC", "each", "pairs",
    "kernel", "data", "a", "b", "get", "out", "shorter", "x1", "x2", "z", "z0", "c0", "x0", "a0", "self", "constants",
    "results", "values", "rows", "cols", "size", "arrays", "dtype", "device", "samples", "constant", "put", "slice",
    "to", "signature", "file", "allow_pickle", "args", "K_x", "K_x0", "K_h", "K_s", "K_s_w", "K_s_at", "T_s", "T_h",
    "K_0", "step", "relu", "tanh", "relu_prime", "tanh_values", "phi_1", "time", "time2", "t", "k", "feature",
    "sample", "µ", "μ", "ﬁ", "fi", "ℌ", "H", "h²", "x₁", "中文", "é", "e\u0301", "🙂", "var", "mean", "position",
    "none", "where", "over", "in", "by", "pi", "T", "A", "G", "C", "X", "moment", "dot", "softmax", "place", "program",
    "width", "axis", "output", "gradient", "returns", "function", "wave", "d_x", "dx", "prev",
)  # fmt: skip
"""Names that a program may have."""
REFUSED = ("", "a\nb", "a\rb", "a\tb", "\0", "a\x0cb", "a\x1bb", "a\x85b", "a\u2028b", "a\u2029b", "a\u200bb",
           "\u202ea", "\ud800", "\ufeffx", "a\u00a0b")  # fmt: skip
"""What is no name: a line would end in it, or it does not print."""

names = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=6).filter(
        lambda s: s.isprintable() and "`" not in s
    ),
)


@st.composite
def namings(draw: Callable[[Any], Any]) -> Naming:
    """A naming under which the names of one kind stay different."""
    table: dict[tuple[Kind, str], str] = {}

    def name(kind: Kind, old: str) -> str:
        if (kind, old) not in table:
            taken = {new for (k, _), new in table.items() if k == kind}
            wanted = names.filter(
                lambda n: n not in taken and (kind != "returned" or n not in ("nngp", "ntk", "terms"))
            )
            table[kind, old] = draw(wanted)
        return table[kind, old]

    return name


def renamed(p: ns.Program, naming: Naming) -> ns.Program:
    """The program under other names."""
    return _Renaming(p, naming).program()


class _Renaming:
    def __init__(self, p: ns.Program, naming: Naming) -> None:
        self.p, self.naming = p, naming
        self.vars: dict[ir.Var, ir.Var] = {}
        self.functions: dict[Function, Function] = {}

    def program(self) -> ns.Program:
        p = self.p
        functions = {f.name: f for f in map(self.function, p.functions.values())}
        lines = [self.line(x) for x in p.lines]
        outputs = [self.statement(o, name=self.naming("output", o.name)) for o in p.outputs]
        returned = [self.statement(r, name=self.naming("returned", r.name)) for r in p.returned]
        gradients = [self.statement(g) for g in p.gradients]
        widths = [self.value(w) for w in p.widths]
        return ns.Program.from_parts(
            self.naming("program", p.name), widths, lines, outputs, gradients, returned, functions
        )

    def line(self, line: Any) -> Any:
        return self.statement(line)

    def statement(self, old: Any, **changes: Any) -> Any:
        fields = {f.name: self.value(getattr(old, f.name)) for f in dataclasses.fields(old) if f.name != "loc"}
        return dataclasses.replace(old, **(fields | changes))

    def value(self, v: Any) -> Any:
        match v:
            case ir.Var():
                return self.var(v)
            case ir.Axis():
                return ir.Axis(self.naming("axis", v.name), v.size)
            case ir.SizeOf():
                return ir.SizeOf(self.naming("axis", v.axis))
            case ir.Width():
                return ir.Width(self.naming("width", v.name), v.ratio)
            case ir.Feature():
                return ir.Feature(self.naming("variable", v.name))
            case ir.Dim() | ir.Strided():
                return type(v)(**{f.name: self.value(getattr(v, f.name)) for f in dataclasses.fields(v)})
            case tuple():
                return tuple(map(self.value, v))
            case sp.Basic():
                return self.expression(v)
            case _:
                return v

    def var(self, v: ir.Var) -> ir.Var:
        if v not in self.vars:
            dims = tuple(self.value(d) for d in v.dims)
            name = self.naming("variable", v.name) if is_named(v.name) else v.name
            self.vars[v] = ir.Var(name, v.kind, self.value(v.rows), self.value(v.cols), dims)
        return self.vars[v]

    def expression(self, e: Any) -> Any:
        return e.replace(
            lambda x: isinstance(x, Head) and not x.spec.builtin,
            lambda x: self.function(x.spec).head(*(self.expression(a) for a in x.args)),
        )

    def function(self, f: Function) -> Function:
        """A user's function under another name, a derivative as the derivative of that."""
        if f not in self.functions:
            if f.origin is not None:
                index = next(i for i, made in f.origin._derivatives.items() if made is f)
                self.functions[f] = self.function(f.origin).derivative(index)
            else:
                self.functions[f] = _named(f, self.naming("function", f.name))
        return self.functions[f]


def _named(f: Function, name: str) -> Function:
    facts: Mapping[str, Any] = {"parity": f.parity, "growth": f.growth, "kinks": f.kinks}
    if f.numeric:
        return ns.numeric(name, f.torch, derivative=f.prime.torch, **facts)  # type: ignore[arg-type]
    return ns.function(name, lambda *args: f.definition(*args), arity=f.arity, **facts)


# ---------------------------------------------------------------- one program with every kind of name


SEQUENCES = np.random.default_rng(1).normal(size=(2, 3, 2))


CUBE = ns.function("cube_plus", lambda x: x**3 + x)


def recurrent(width: str = "n", program: str = "p") -> ns.Program:
    """Data, a per-sample scalar, a recurrence, a bias, a returned scalar, a function of one's own, an output."""
    p = ns.Program(program)
    n = p.width(width)
    t = p.axis("t")
    x, c = p.data("x", axes=(t,)), p.scalar("c", axes=(t,), per_sample=True)
    U, W, b = p.matrix("U", n, x, var=0.5), p.matrix("W", n, n, var=0.5), p.bias("b", n, var=0.1)
    u = p.let("u", U @ (2 * x))
    s = p.let("s", p.scan(t, 0, lambda old: ns.relu(W @ old + u) + 0.1 * CUBE(c * u + b)))
    last = p.let("y", s.at(t, -1))
    p.returns("r", p.let("m", ns.moment(last**2)))
    p.output(p.readout("v", n), last)
    return p


KINDS = [
    ("program", "p"), ("width", "n"), ("axis", "t"), ("variable", "x"), ("variable", "c"), ("variable", "U"),
    ("variable", "W"), ("variable", "b"), ("variable", "s"), ("variable", "u"), ("variable", "y"), ("variable", "m"),
    ("variable", "v"), ("function", "cube_plus"), ("output", "f"), ("returned", "r"),
]  # fmt: skip


def spread(start: int) -> Naming:
    """A naming with another hostile name in every place."""
    return lambda kind, old: HOSTILE[(start + 11 * KINDS.index((kind, old))) % len(HOSTILE)]


def inputs(naming: Naming, both: bool = True) -> Any:
    x, c = naming("variable", "x"), naming("variable", "c")
    arrays = {x: SEQUENCES, c: SEQUENCES[:, :, 0] / 2}
    return arrays if both else {k: v[:1, :2] for k, v in arrays.items()}


def swapped(new: str) -> tuple[ns.Program, Naming]:
    """The recurrent program with a hostile name in every place."""

    def naming(kind: str, name: str) -> str:
        same = [old for k, old in KINDS if k == kind]
        number = same.index(name) if name in same else name
        return new if number == 0 else f"{new}{number}"

    return renamed(recurrent(), naming), naming


SOME = HOSTILE[::12]
FEW = (f"x if 0 else {SIDE_EFFECT} or x.x", f'""" + {SIDE_EFFECT} + """', "../../::error::$a%0A")
