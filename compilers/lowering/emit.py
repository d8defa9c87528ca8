"""Values → torch source.

Every printed tensor has its sample dimensions first ([n] in the quantities of one input, [n, n̄] in a pair) and then
one dimension for each symbol of the statement's `order`, of size 1 where it does not depend on the symbol; so all
arithmetic broadcasts. Inside a loop, loop symbols are Python integers and have no dimension.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never, cast

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.values import (
    Access,
    Add,
    Const,
    Constant,
    Copy,
    Entry,
    Expect1,
    Expect2,
    ExpectJ,
    FeatureDim,
    Fn,
    Given,
    Gram,
    Ind,
    Index,
    Inv,
    Mul,
    Num,
    Off,
    Radial,
    SizeValue,
    Soft,
    Sum,
    Sym,
    Value,
    Win,
    index_symbols,
    mul,
    split,
    symbols,
)
from netsor.compilers.lowering.functions import Functions, array, number
from netsor.compilers.lowering.torch_functions import torch_source
from netsor.functions import Head
from netsor.sizes import fold

Z = sp.Symbol("z", real=True)
LONG = 32  # terms of a sum that are written as one expression; Python reads 200 nested calls


@dataclass
class Emitter:
    """Prints values of one space; `tables` are the entries of the loop being printed, called with integers."""

    space: str  # "input" | "pair"
    functions: Functions
    loops: Mapping[Sym, str] = field(default_factory=dict)
    tables: Mapping[Entry, tuple[int, ...]] = field(default_factory=dict)  # entry -> positions of its loop dims
    wave: Sym | None = None  # loop symbols are vectors of positions, along this dimension
    sloped: frozenset[Value] = frozenset()  # expectations after which those of the derivatives are asked for

    @property
    def leads(self) -> int:
        return 2 if self.space == "pair" else 1

    def with_loops(self, loops: Mapping[Sym, str], tables: Mapping[Entry, tuple[int, ...]]) -> Emitter:
        return Emitter(self.space, self.functions, loops, tables)

    def with_wave(self, loops: Mapping[Sym, str], tables: Mapping[Entry, tuple[int, ...]]) -> Emitter:
        """Loop symbols as vectors: all positions of a wavefront at once, along a dimension of their own."""
        return Emitter(self.space, self.functions, loops, tables, Sym(-1, 0, 0, "wave"))

    def kept(self, order: Sequence[Sym]) -> list[Sym]:
        """The symbols that have a dimension here."""
        open_dims = [s for s in order if s not in self.loops and s != self.wave]
        return open_dims if self.wave is None else [self.wave, *open_dims]

    # ------------------------------------------------------------ names

    def name(self, entry: Entry) -> str:
        """The identifier of an entry."""
        return self.functions.identifiers.of(("entry", entry.name), entry.name)

    def part(self, entry: Entry, part: str) -> str:
        """The identifier of what belongs to an entry: its function of positions `at`, its values on a wavefront `w`."""
        return self.functions.identifiers.of((part, entry.name), f"{self.name(entry)}_{part}")

    def _entry(self, v: Access) -> str:
        """An entry as a text reads it, of the input that the copy means."""
        return self.name(v.entry) if v.entry.space == "pair" else f"{self.owner(v.copy)}{self.name(v.entry)}"

    def owner(self, copy: Copy) -> str:
        """The quantities of the input that a copy means."""
        if self.space == "input":
            return ""
        return {1: "a.", 2: "b.", 0: "a.", "m": "", "s": "a."}[copy]

    def data(self, copy: Copy) -> str:
        return "data" if self.space == "input" else {1: "a.data", 2: "b.data"}.get(cast(int, copy), "a.data")

    def size(self, size: ir.Size, copy: Copy) -> str:
        table = "shorter" if copy == "m" else f"{self.data(copy)}.size"
        return fold(size, str, lambda axis: f"{table}[{axis!r}]", _strided)

    def _whole(self, size: ir.Size, copy: Copy) -> str:
        """The size of an axis whose positions wrap, which is that of both inputs when both are indexed at once."""
        if copy != "m":
            return self.size(size, copy)
        return f"rt.equal_sizes({self.size(size, 1)}, {self.size(size, 2)})"

    # ------------------------------------------------------------ values

    def emit(self, v: Value, order: Sequence[Sym]) -> str:  # noqa: C901
        match v:
            case Num() | SizeValue() | FeatureDim():
                return self._plain(v)
            case Add():
                return self._sum(v, order)
            case Mul():
                return self._product(v, order)
            case Sum():
                return self._reduce(v, order)
            case Fn():
                return self._function(v, order)
            case Soft():
                return self._softmax(v, order)
            case Access():
                return self._access(v, order)
            case Given() | Constant():
                return self._given(v, order)
            case Gram():
                return self._gram(v, order)
            case Ind():
                return self._indicator(v, order)
            case Expect1():
                return self._one(v, order)
            case Expect2():
                return self._two(v, order)
            case ExpectJ():
                return self._joint(v, order)
            case Radial():
                return self._radial(v, order)
            case _:
                assert_never(v)

    def _plain(self, v: Num | SizeValue | FeatureDim) -> str:
        match v:
            case Num():
                return number(v.value) if not v.value.is_Integer else str(v.value)
            case SizeValue():
                return self.size(v.size, v.copy)
            case FeatureDim():
                return f"{self.data(1)}[{v.var.name!r}].shape[-1]"
            case _:
                assert_never(v)

    def _sum(self, v: Add, order: Sequence[Sym]) -> str:
        if len(v.args) > LONG:
            half = len(v.args) // 2
            return f"rt.add({', '.join(self._sum(Add(part), order) for part in (v.args[:half], v.args[half:]))})"
        return self._one_pass(v, order) if self.space == "pair" else self._added(v, order)

    def _added(self, v: Add, order: Sequence[Sym]) -> str:
        text = ""
        for a in v.args:
            text = _plus(text, self.emit(a, order))
        return text

    def _one_pass(self, v: Add, order: Sequence[Sym]) -> str:
        """A sum over pairs, one pass for each term, in the memory of a term that nothing else reads."""
        parts = [split(a) for a in v.args if not isinstance(a, Num)]
        if not any(self._is_tensor(rest) for _, rest in parts):
            return self._added(v, order)
        c, first = min(parts, key=lambda p: (not self._is_fresh(p[1]), not self._is_tensor(p[1]), p[0] != 1))
        rest = [p for p in parts if p != (c, first)]
        text, fresh = self.emit(first, order), self._is_fresh(first)
        if not fresh and c != 1:
            text, c, fresh = self.emit(mul(Num(c), first), order), sp.Integer(1), True
        elif not fresh and rest:
            d, other = rest.pop(0)
            scale = "" if d == 1 else f", alpha={self._plain(Num(d))}"
            text, fresh = f"rt.add({text}, {self.emit(other, order)}{scale})", True
        for d, other in rest:
            text = f"rt.axpby({self._plain(Num(c))}, {text}, {self._plain(Num(d))}, {self.emit(other, order)})"
            c = sp.Integer(1)
        if c != 1:
            text = f"rt.times({text}, {self._plain(Num(c))})"
        for constant in (self._plain(a) for a in v.args if isinstance(a, Num)):
            text = f"{text}.add_({constant})" if fresh else f"rt.add({text}, {constant})"
        return text

    def _product(self, v: Mul, order: Sequence[Sym]) -> str:
        """A product, of pairs in the memory of a factor that nothing else reads, or in that of a dropped tensor."""
        first = next((a for a in v.args if self._is_fresh(a)), next((a for a in v.args if self._is_tensor(a)), None))
        if self.space != "pair" or first is None:
            return " * ".join(self._tight(a, order) for a in v.args)
        rest = list(v.args)
        rest.remove(first)
        name = "rt.times" if self._is_fresh(first) else "rt.product"
        return f"{name}({', '.join(self.emit(a, order) for a in (first, *rest))})"

    def _is_fresh(self, v: Value) -> bool:
        """Is the text of a value a tensor of pairs that nothing else reads?"""
        return isinstance(v, Expect2 | Sum | Mul) and self._is_tensor(v)

    def _is_tensor(self, v: Value) -> bool:
        """Is the text of a value a tensor of pairs for certain?"""
        match v:
            case Access():
                return v.entry.space == "pair" and v.entry not in self.tables
            case Sum():
                return self._is_tensor(v.body)
            case Mul():
                return any(self._is_tensor(a) for a in v.args)
            case Expect2():
                return True
            case (
                Num() | Given() | Constant() | Gram() | SizeValue() | FeatureDim() | Add() | Ind() | Fn() | Soft()
                | Expect1() | ExpectJ() | Radial()
            ):  # fmt: skip
                return False
            case _:
                assert_never(v)

    def _tight(self, a: Value, order: Sequence[Sym]) -> str:
        text = self.emit(a, order)
        loose = isinstance(a, Add) or text.startswith("-") or (isinstance(a, SizeValue) and not text.isidentifier())
        if isinstance(a, Fn):
            loose = True
        return f"({text})" if loose else text

    # ------------------------------------------------------------ reading entries

    def _access(self, v: Access, order: Sequence[Sym]) -> str:
        if v.entry in self.tables:
            return self._call(v, order)
        own = v.entry.space
        base = self._entry(v)
        return self._read(base, self._leads(own, v.copy), v.entry.dims, v.idx, order, v.copy)

    def _leads(self, space: str, copy: Copy) -> list[str]:
        """Sample dimensions of an array: in a pair those of a are [n, 1, ...], those of b [1, m, ...]."""
        del copy
        return [] if space == "const" else [":"] * self.leads

    def _call(self, v: Access, order: Sequence[Sym]) -> str:
        """An entry of the loop, called at integers (or at the positions of a wavefront)."""
        if self.wave is not None:
            return self._in_wave(v, order)
        positions = self.tables[v.entry]
        args = ", ".join(self._integer(v.idx[p]) for p in positions)
        rest = [(d, i) for p, (d, i) in enumerate(zip(v.entry.dims, v.idx, strict=True)) if p not in positions]
        base = f"{self.part(v.entry, 'at')}({args})"
        if not rest:
            return self._bare(base, self.leads, order)
        return self._read(base, [":"] * self.leads, [d for d, _ in rest], [i for _, i in rest], order, v.copy)

    def _in_wave(self, v: Access, order: Sequence[Sym]) -> str:
        """This wavefront's own values, or those of earlier ones."""
        positions = self.tables[v.entry]
        moved = [v.idx[p] for p in positions]
        rest = [cast(Sym, i) for p, i in enumerate(v.idx) if p not in positions]
        if all(isinstance(i, Sym) for i in moved):
            body = self.part(v.entry, "w")
        else:
            body = f"{self.name(v.entry)}.at({', '.join(self._integer(i) for i in moved)})"
        return self._align(body, self.leads, [cast(Sym, self.wave), *rest], self.kept(order))

    def _bare(self, base: str, leads: int, order: Sequence[Sym]) -> str:
        open_dims = self.kept(order)
        return base if not open_dims else f"{base}[{', '.join([':'] * leads + ['None'] * len(open_dims))}]"

    def _integer(self, i: Index) -> str:
        match i:
            case Sym():
                return self.loops[i]
            case Const():
                return str(i.value) if i.value >= 0 else f"{self.size(i.size, i.copy)} - {-i.value}"
            case Off():
                return f"{self.loops[i.t]} - {i.by}" if i.by > 0 else f"{self.loops[i.t]} + {-i.by}"
            case Win() | Inv():
                raise AssertionError("windows do not stand inside a recurrence")
            case _:
                assert_never(i)

    def _read(
        self, base: str, leads: list[str], dims: Sequence[Sym], idx: Sequence[Index], order: Sequence[Sym], copy: Copy
    ) -> str:
        """base[...] aligned to `order`; plain symbols by views, everything else by gathering."""
        kept = self.kept(order)
        found = [s for i in idx for s in index_symbols(i) if s not in self.loops]
        if self.wave is not None and any(s in self.loops for i in idx for s in index_symbols(i)):
            return self._at_wave(base, leads, dims, idx, kept, copy)
        if len(set(found)) != len(found) or not all(isinstance(i, Sym | Const) for i in idx):
            return self._take(base, leads, idx, kept)
        body = self._fitted(base, leads, dims, idx, copy)
        picks = [*leads, *(self._pick(i) for i in idx)]
        if any(p != ":" for p in picks):
            body = f"{body}[{', '.join(picks)}]"
        return self._align(body, len(leads), found, kept)

    def _at_wave(
        self, base: str, leads: list[str], dims: Sequence[Sym], idx: Sequence[Index], kept: list[Sym], copy: Copy
    ) -> str:
        """An array outside the loop, read at the positions of the wavefront."""
        own = sum(1 for x in leads if x == ":")
        looped = [p for p, i in enumerate(idx) if any(s in self.loops for s in index_symbols(i))]
        rest = [(p, i) for p, i in enumerate(idx) if p not in looped]
        if any(isinstance(i, Win | Inv) for i in idx) or not all(isinstance(i, Sym) for _, i in rest):
            return self._take(base, leads, idx, kept)
        body = self._fitted(base, leads, [dims[p] for p, _ in rest], [i for _, i in rest], copy) if rest else base
        at = ", ".join(f"({p}, {self._integer(idx[p])})" for p in looped)
        body = f"rt.at({body}, {own}, {at})"
        if "None" in leads:
            body = f"{body}[{', '.join(leads)}]"
        return self._align(body, len(leads), [cast(Sym, self.wave), *(cast(Sym, i) for _, i in rest)], kept)

    def _fitted(self, base: str, leads: list[str], dims: Sequence[Sym], idx: Sequence[Index], copy: Copy) -> str:
        """Dimensions read at a symbol of the other input are cut, or filled with zeros, to its size."""
        own = sum(1 for x in leads if x == ":")
        fits = [
            f"({own + p}, {self.size(i.size, i.copy)}, {self.size(d.size, self._side(d, copy))})"
            for p, (d, i) in enumerate(zip(dims, idx, strict=True))
            if isinstance(i, Sym) and not self._owned(d, i, copy)
        ]
        return f"rt.fit({base}, {', '.join(fits)})" if fits else base

    def _owned(self, d: Sym, i: Index, copy: Copy) -> bool:
        """Does a data-sized symbol run over the same sequence as the entry's dimension?"""
        if not isinstance(i, Sym) or isinstance(i.size, int):
            return True
        own = self._side(d, copy)
        return self.space == "input" or own not in (1, 2, "m") or i.copy == own

    @staticmethod
    def _side(d: Sym, copy: Copy) -> Copy:
        """Whose size an entry's dimension has, read in the given copy."""
        return d.copy if d.copy in (1, 2, "m") else copy

    def _pick(self, i: Index) -> str:
        match i:
            case Sym():
                return self.loops.get(i, ":")
            case Const():
                return str(i.value)
            case Win() | Inv() | Off():
                raise AssertionError("only symbols and constants are read by a view")
            case _:
                assert_never(i)

    def _align(self, body: str, leads: int, found: list[Sym], kept: list[Sym]) -> str:
        wanted = [s for s in kept if s in found]
        if found != wanted:
            permutation = [*range(leads), *(leads + found.index(s) for s in wanted)]
            body = f"{body}.permute({', '.join(map(str, permutation))})"
        if len(wanted) != len(kept):
            marks = [":"] * leads + [":" if s in found else "None" for s in kept]
            while marks and marks[-1] == ":" and "None" in marks:
                marks.pop()
            if leads == 0:
                marks = ["..."] + [":" if s in found else "None" for s in kept] if marks else marks
            body = f"{body}[{', '.join(marks)}]"
        return body

    def _take(self, base: str, leads: list[str], idx: Sequence[Index], kept: list[Sym]) -> str:
        body = base if "None" not in leads else f"{base}[{', '.join(leads)}]"
        args = ", ".join(self.index(i, kept) for i in idx)
        return f"rt.take({body}, {len(leads)}, {len(kept)}, {args})"

    def index(self, i: Index, kept: Sequence[Sym]) -> str:
        """An index as an integer tensor over the kept symbols (a Python integer for loop symbols)."""
        match i:
            case Sym():
                return self._grid(i, kept)
            case Const():
                return str(i.value) if i.value >= 0 else f"{self.size(i.size, i.copy)} - {-i.value}"
            case Off():
                return f"{self._grid(i.t, kept)} - {i.by}" if i.by > 0 else f"{self._grid(i.t, kept)} + {-i.by}"
            case Win():
                inner = f"{i.stride} * {self._grid(i.s, kept)} + {self._offsets(i, kept)}"
                return inner if i.wrap is None else f"({inner}) % {self._whole(i.wrap, i.s.copy)}"
            case Inv():
                wrap = "None" if i.wrap is None else self._whole(i.wrap, i.t.copy)
                return f"rt.inverse({self._grid(i.t, kept)} - {self._offsets(i, kept)}, {i.stride}, {wrap})"
            case _:
                assert_never(i)

    def _grid(self, s: Sym, kept: Sequence[Sym]) -> str:
        if s in self.loops:
            return self.loops[s] if self.wave is None else f"{self.loops[s]}.view(-1{', 1' * (len(kept) - 1)})"
        after = len(kept) - 1 - list(kept).index(s)
        return f"rt.grid({self.data(s.copy)}, {self.size(s.size, s.copy)}, {after})"

    def _offsets(self, i: Win | Inv, kept: Sequence[Sym]) -> str:
        if i.tap in self.loops:
            at = self.loops[i.tap]
            if self.wave is None:
                return f"{i.offsets!r}[{at}]"
            return f"rt.values({self.data(0)}, {i.offsets!r}, 0)[{at}].view(-1{', 1' * (len(kept) - 1)})"
        after = len(kept) - 1 - list(kept).index(i.tap)
        return f"rt.values({self.data(0)}, {i.offsets!r}, {after})"

    # ------------------------------------------------------------ leaves

    def _given(self, v: Given | Constant, order: Sequence[Sym]) -> str:
        kept = self.kept(order)
        if isinstance(v, Constant) and isinstance(v.array, sp.Symbol):
            return self._align(f"{self.data(0)}.parameter({v.name!r})", 0, [], kept)
        if isinstance(v, Constant) and v.array == "position":
            return f"rt.position({self.data(0)}, {self.index(v.idx[0], kept)})"
        if isinstance(v, Constant):
            base, leads, copy = f"{self.data(0)}.constant({array(v.array)})", [], cast(Copy, 0)
            sizes: list[Sym] = [cast(Sym, i) for i in v.idx]
        else:
            base, copy = f"{self.data(v.copy)}[{v.var.name!r}]", v.copy
            leads = self._leads("input", v.copy)
            sizes = [Sym(0, d.size, copy if not isinstance(d.size, int) else 0, d.axis.name) for d in v.var.dims]
        if all(isinstance(i, Sym | Const) for i in v.idx):
            return self._read(base, leads, sizes, v.idx, order, copy)
        return self._take(base, leads, v.idx, kept)

    def _gram(self, v: Gram, order: Sequence[Sym]) -> str:
        letters = iter(string.ascii_lowercase.replace("n", "").replace("m", "").replace("d", ""))
        names: dict[Sym, str] = {}
        for i in (*v.idx1, *v.idx2):
            names.setdefault(cast(Sym, i), next(letters))
        first, second = "".join(names[cast(Sym, i)] for i in v.idx1), "".join(names[cast(Sym, i)] for i in v.idx2)
        kept = self.kept(order)
        present = [s for s in kept if s in names]
        out = "".join(names[s] for s in present)
        one, two = self._rows(v.array[0], v.copy1, v.idx1), self._rows(v.array[1], v.copy2, v.idx2)
        if self.space == "pair":
            text = f'rt.gram("nm{first}d,nm{second}d->nm{out}", {one}, {two})'
        else:
            text = f'rt.gram("n{first}d,n{second}d->n{out}", {one}, {two})'
        return self._align(text, self.leads, present, kept)

    def _rows(self, var: ir.Var, copy: Copy, idx: Sequence[Index]) -> str:
        """An array of one copy, its axes at the sizes of the symbols that they run with."""
        text = f"{self.data(copy)}[{var.name!r}]"
        other = [
            f"({k}, {self.size(i.size, i.copy)})" for k, i in enumerate(cast("tuple[Sym, ...]", idx), self.leads)
            if self.space == "pair" and not isinstance(i.size, int) and i.copy in (1, 2, "m") and i.copy != copy
        ]  # fmt: skip
        return f"rt.fit({text}, {', '.join(other)})" if other else text

    # ------------------------------------------------------------ sums

    def _reduce(self, v: Sum, order: Sequence[Sym]) -> str:
        kept = self.kept(order)
        box = self._box(v, kept)
        if box is not None:
            return box
        contraction = self._contraction(v, kept)
        if contraction is not None:
            return contraction
        return f"rt.total({self.emit(v.body, [*kept, v.sym])}, {self.size(v.sym.size, v.sym.copy)})"

    def _box(self, v: Sum, kept: list[Sym]) -> str | None:
        """Σ_κ X[s + κ, s̄ + κ]: a box sum, never materialised per offset."""
        body = v.body
        if not isinstance(body, Access) or body.entry in self.tables or self.loops:
            return None
        moved = [i for i in body.idx if isinstance(i, Win | Inv)]
        plain = [i for i in body.idx if isinstance(i, Sym)]
        outs = [i.s if isinstance(i, Win) else i.t for i in moved]
        if len(moved) + len(plain) != len(body.idx) or any(i.tap != v.sym for i in moved) or v.sym in plain:
            return None
        if len(set([*outs, *plain])) != len(body.idx) or not all(s in kept for s in (*outs, *plain)):
            return None
        own = body.entry.space
        base = self._entry(body)
        leads = self._leads(own, body.copy)
        specs = []
        for p, i in enumerate(body.idx):
            if not isinstance(i, Win | Inv):
                continue
            s = i.s if isinstance(i, Win) else i.t
            kind = "rt.forward" if isinstance(i, Win) else "rt.adjoint"
            size = self.size(s.size, s.copy) if i.wrap is None else self._whole(s.size, s.copy)
            specs.append(f"{kind}({p}, {i.offsets!r}, {i.stride}, {size}, {i.wrap is not None})")
        text = f"rt.box({base}, {sum(1 for x in leads if x == ':')}, {', '.join(specs)})"
        if "None" in leads:
            text = f"{text}[{', '.join(leads)}]"
        found = [i.s if isinstance(i, Win) else i.t if isinstance(i, Inv) else cast(Sym, i) for i in body.idx]
        return self._align(text, len(leads), found, kept)

    def _contraction(self, v: Sum, kept: list[Sym]) -> str | None:
        """Σ_t of a product as one einsum."""
        if self.loops or not isinstance(v.body, Mul):
            return None
        factors = [f for f in v.body.args if v.sym in symbols(f)]
        if len(factors) < 2 or len(factors) != len(v.body.args):
            return None
        names: dict[Sym, str] = {}
        letters = iter(string.ascii_lowercase.replace("n", "").replace("m", ""))
        operands, subscripts = [], []
        for f in factors:
            own = sorted(symbols(f), key=lambda s: (s == v.sym, s))
            for s in own:
                names.setdefault(s, next(letters))
            operands.append(self.emit(f, own))
            subscripts.append(("nm" if self.space == "pair" else "n") + "".join(names[s] for s in own))
        present = [s for s in kept if s in names and s != v.sym]
        out = ("nm" if self.space == "pair" else "n") + "".join(names[s] for s in present)
        sizes = ", ".join(f"{names[s]}={self.size(s.size, s.copy)}" for s in names)
        text = f'rt.contract("{",".join(subscripts)}->{out}", ({", ".join(operands)}), {sizes})'
        return self._align(text, self.leads, present, kept)

    # ------------------------------------------------------------ functions

    def _indicator(self, v: Ind, order: Sequence[Sym]) -> str:
        kept = self.kept(order)
        left = self.index(v.left, kept)
        size = self.size(v.size, v.copy)
        if v.right is None:
            return f"rt.inside({self.data(0)}, {left}, {size})"
        return f"rt.equal({self.data(0)}, {left}, {self.index(v.right, kept)}, {size})"

    def _function(self, v: Fn, order: Sequence[Sym]) -> str:
        texts = [self.emit(a, order) for a in v.args]
        if all(isinstance(a, SizeValue) for a in v.args):
            if all(
                isinstance(x, sp.Add | sp.Mul | sp.Pow | sp.Number | sp.Symbol) for x in sp.preorder_traversal(v.expr)
            ):
                names = {ir.param(i): sp.Symbol(f"({t})") for i, t in enumerate(texts)}
                return cast(str, sp.pycode(v.expr.xreplace(names)))
            texts = [f"rt.position({self.data(0)}, {t})" for t in texts]
        table = {ir.param(i): f"({t})" for i, t in enumerate(texts)}
        return torch_source(v.expr, table, self.functions.numeric)

    def _softmax(self, v: Soft, order: Sequence[Sym]) -> str:
        kept = self.kept(order)
        if v.sym not in kept:  # value and mask do not depend on it
            return f"{self._softmax(v, [*order, v.sym])}[..., 0]"
        dim = kept.index(v.sym) - len(kept)
        mask = "" if v.mask is None else f", {self.emit(v.mask, order)}"
        return f"rt.softmax({self.emit(v.value, order)}, {dim}, {self.size(v.sym.size, v.sym.copy)}{mask})"

    def _two(self, v: Expect2, order: Sequence[Sym]) -> str:
        parts = [self.emit(x, order) for x in (v.k11, v.k22, v.k12)]
        parts += self._means((v.m1, v.m2), order)
        if _is_one_variable(v):
            parts.append("same=True")
        if v in self.sloped:
            parts.append("slope=True")
        return f"rt.E2({self.functions.name(v.f)}, {self.functions.name(v.g)}, {', '.join(parts)})"

    def _radial(self, v: Radial, order: Sequence[Sym]) -> str:
        """Matrices over the batches stand in the last dimensions; the result's are moved into place."""
        one, two = v.sides
        kept = self.kept(order)
        outer = [s for s in kept if s not in one.out and s not in two.out]
        f, g = self.functions.name(one.f), self.functions.name(two.f)
        s = self._square(one.covariance, outer, one.rows, one.cols)
        if v.within:
            text = f"rt.radial_single({f}, {g}, {2 * one.power!r}, {one.eps!r}, {s})"
        else:
            t = self._square(two.covariance, outer, two.rows, two.cols)
            x = self._square(v.cross, outer, one.rows, two.rows)
            theta = "" if v.theta is None else f", {self._square(v.theta, outer, one.rows, two.rows)}"
            powers, eps = (one.power, two.power), (one.eps, two.eps)
            text = f"rt.radial({f}, {g}, {powers!r}, {eps!r}, {s}, {t}, {x}{theta})"
        sizes = [self.size(q.size, q.copy) for q in (*one.out, *two.out)]
        places = [kept.index(q) for q in (*one.out, *two.out)]
        spread = len(kept) - len(outer)
        free = [i for i in range(len(kept)) if kept[i] in outer]
        return f"rt.placed({text}, {self.leads}, {free!r}, ({', '.join(sizes)}), {places!r}, {len(outer) + spread})"

    def _square(self, v: Value, outer: list[Sym], rows: tuple[Sym, ...], cols: tuple[Sym, ...]) -> str:
        sizes = ["(" + ", ".join(self.size(s.size, s.copy) for s in side) + ",)" for side in (rows, cols)]
        text, leads = self.emit(v, [*outer, *rows, *cols]), self.leads + len(outer)
        if isinstance(v, Num):
            text = f"rt.ranked({text}, {self.data(0)}, {leads + len(rows) + len(cols)})"
        return f"rt.square({text}, {leads}, {sizes[0]}, {sizes[1]})"

    def _means(self, means: Sequence[Value | None], order: Sequence[Sym]) -> list[str]:
        if all(m is None for m in means):
            return []
        return ["None" if m is None else self.emit(m, order) for m in means]

    def _one(self, v: Expect1, order: Sequence[Sym]) -> str:
        k = self.emit(v.k, order)
        mean = "" if v.mean is None else f", {self.emit(v.mean, order)}"
        if v.params:
            return self._joint(
                ExpectJ(v.f.xreplace({Z: sp.Symbol("z0", real=True)}), (v.k,), (v.mean,), v.params), order
            )
        split = _two_factors(v.f)
        if split is not None:
            return f"rt.E11({self.functions.name(split[0])}, {self.functions.name(split[1])}, {k}{mean})"
        return f"rt.E1({self.functions.name(v.f)}, {k}{mean})"

    def _joint(self, v: ExpectJ, order: Sequence[Sym]) -> str:
        count = len(v.means)
        names = {sp.Symbol(f"z{i}", real=True): f"z{i}" for i in range(count)}
        names |= {ir.param(i): f"c{i}" for i in range(len(v.params))}
        body = torch_source(v.f, names, self.functions.numeric)
        args = ", ".join(names.values())
        cov = ", ".join(self.emit(c, order) for c in v.cov)
        means = ", ".join("None" if m is None else self.emit(m, order) for m in v.means)
        params = "".join(f", {self.emit(c, order)}" for c in v.params)
        kinks = _joint_kinks(v.f)
        return f"rt.joint(lambda {args}: {body}, ({cov},), ({means},), {kinks!r}{params})"


def _strided(inner: str, minus: int, stride: int) -> str:
    shift = f" - {minus}" if minus > 0 else f" + {-minus}" if minus else ""
    return f"-(-({inner}{shift}) // {stride})"


def _plus(text: str, part: str) -> str:
    if part.startswith("-") and text:
        return f"{text} - {part[1:]}"
    return f"{text} + {part}" if text else part


def _joint_kinks(f: sp.Expr) -> tuple[int, ...] | None:
    """The variables at whose zeros F has its kinks; None when a kink lies anywhere else."""
    kinked: set[str] = set()
    for h in f.atoms(Head):
        if not h.spec.kinks:
            continue
        factors = [x.as_base_exp()[0] for a in h.args for x in sp.Mul.make_args(a) if not x.is_number]
        if any(k != 0 for k in h.spec.kinks) or not all(x.is_Symbol and x.name[0] == "z" for x in factors):
            return None
        kinked |= {x.name for x in factors}
    return tuple(sorted(int(n[1:]) for n in kinked))


def _two_factors(f: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
    """f = g·h with functions that are not powers of z, so that the diagonal rule keeps their closed forms."""
    factors: list[sp.Expr] = []
    for x in sp.Mul.make_args(f):
        base, exponent = x.as_base_exp()
        if exponent.is_Integer and exponent == 2 and not base.is_Symbol:
            factors += [base, base]
        elif x.is_number:
            return None
        else:
            factors.append(x)
    return (factors[0], factors[1]) if len(factors) == 2 else None


def _is_one_variable(v: Expect2) -> bool:
    """Are u and v one variable of two inputs, at indices of their own or at the same ones?"""
    a, b, c = v.k11, v.k22, v.k12
    if not (isinstance(a, Access) and isinstance(b, Access) and isinstance(c, Access)) or v.m1 or v.m2:
        return False
    nodes = {r.node for r in (*a.entry.refs, *c.entry.refs)}
    if a.entry is not b.entry or a.entry.space != "input" or c.entry.space != "pair" or len(nodes) != 1:
        return False
    plain = all(isinstance(i, Sym) for i in c.idx) and a.entry.kind == c.entry.kind == "K"
    return plain and (c.idx == a.idx + b.idx or c.idx == a.idx == b.idx)
