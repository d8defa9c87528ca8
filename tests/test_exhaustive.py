"""A new line, value, index, size or node is named by the type checker or here, wherever it has to be known."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import guards
import pytest
import sympy as sp

from netsor import ir
from netsor.compilers.derive import nodes
from netsor.compilers.derive.entries import indices, traversal, values
from netsor.compilers.derive.entries.arithmetic import rewrite
from netsor.compilers.limit import questions
from netsor.compilers.lowering.plan import order

ROOT = Path(__file__).parents[1]
UNIONS = (ir.Line, ir.Size, values.Value, indices.Index, nodes.AnyNode, order.Statement, questions.Question)

# Functions that look for some classes and treat all others alike, which is right for any new one. It only shrinks.
CHAINS = {
    "netsor/facts.py: matrices": "matrices are made by two lines",
    "netsor/run/lines.py: natural": "inputs; the others are computed",
    "netsor/checker/regularity/scalars.py: constants": "a function of constants is constant",
    "netsor/checker/regularity/scalars.py: data_sizes": "inputs",
    "compilers/finite/arrays.py: values": "random arrays",
    "compilers/reference/interpreter.py: vector": "another class raises",
    "compilers/reference/interpreter.py: _cov": "variables of an unrolled program, which `vector` has let through",
    "compilers/derive/nodes.py: _scalar": "a moment's argument, a scalar known to be zero",
    "compilers/derive/nodes.py: node_sampled": "data, and lines that `_consumes_size` matches",
    "compilers/derive/rules.py: _pair": "pairs of nodes; `_expand` refuses what no rule takes",
    "compilers/derive/rules.py: _atoms": "pairs of nodes; `_expand` refuses what no rule takes",
    "compilers/derive/entries/arithmetic.py: add": "sums are flattened, other terms are kept",
    "compilers/derive/entries/arithmetic.py: mul": "products are flattened, other factors are kept",
    "compilers/derive/entries/arithmetic.py: _gathered": "sums and products are gathered, other values are kept",
    "compilers/lowering/schedule.py: wave_order": "another value makes no wavefront",
    "compilers/lowering/schedule.py: loop_dims": "what moves; symbols are linked whatever the index",
}


def _function(c: guards.Complaint) -> str:
    return f"{c.path}: {c.text.split()[0]}" if c.is_chain else str(c)


def test_no_class_is_forgotten() -> None:
    found = guards.complaints(ROOT)
    assert not [str(c) for c in found if _function(c) not in CHAINS], "\n".join(map(str, found))
    assert {_function(c) for c in found} == set(CHAINS), "an entry of CHAINS is no chain any more: remove it"


def test_the_guard_reads_the_unions_as_python_does() -> None:
    code = guards.Code(ROOT)
    for name, union in zip(guards.CLOSED, UNIONS, strict=True):
        classes = {c.strip("'") if isinstance(c, str) else getattr(c, "__name__", str(c)) for c in get_args(union)}
        assert {m.rpartition(".")[2] for m in code.families[name]} == classes


# ---------------------------------------------------------------- each kind of hole is seen

ALL = " | ".join(f"ir.{c.__name__}()" for c in get_args(ir.Line))
HOLES = {
    "an open case": "match line:\n        case ir.At(): return 1\n        case _: return 2",
    "a case under a condition": f"match line:\n        case {ALL} if line.loc: return 1\n"
    "        case _: assert_never(line)",
    "a class left out": "match line:\n        case ir.At(): return 1\n        case _: assert_never(line)",
    "a table": "return {ir.At: 1, ir.Place: 2}[type(line)]",
    "a chain": "if isinstance(line, ir.At): return 1\n    if isinstance(line, ir.Place): return 2",
    "a name": "return getattr(f, f'_{type(line).__name__}')",
    "a field": "return getattr(line, 'index', 0)",
    "an exempt function that does more": "for x in (1, 2):\n        pass\n    return x",
}


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_is_seen(hole: str, tmp_path: Path) -> None:
    _copy(tmp_path)
    exempt = "  # noqa: C901" if hole == "an exempt function that does more" else ""
    text = f"from netsor import ir\n\n\ndef f(line: ir.Line) -> object:{exempt}\n    {HOLES[hole]}\n"
    (tmp_path / "netsor" / "hole.py").write_text(text)
    assert {c.path for c in guards.complaints(tmp_path)} >= {"netsor/hole.py"}


# ---------------------------------------------------------------- a new class


def _copy(to: Path) -> None:
    """The files that define the unions."""
    plan = (f"compilers/lowering/plan/{part}.py" for part in ("arrays", "operations", "order", "positions"))
    entries = (f"compilers/derive/entries/{part}.py" for part in ("indices", "values"))
    for file in ("netsor/ir.py", "compilers/derive/nodes.py", "compilers/limit/questions.py", *entries, *plan):
        (to / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, to / file)


def _source(to: Path) -> None:
    """All sources, the links between the folders aside."""
    for folder in guards.FOLDERS:
        shutil.copytree(
            ROOT / folder, to / folder,
            ignore=lambda d, names: [n for n in names if n == "__pycache__" or Path(d, n).is_symlink()],
        )  # fmt: skip


def _insert(root: Path, file: str, before: str, text: str, member: str) -> None:
    """A class in front of a union, and the class as a member of it."""
    path = root / file
    old = path.read_text(encoding="utf-8")
    assert old.count(f"\n{before}") == 1
    path.write_text(old.replace(f"\n{before}", f"\n{text}\n\n{before} {member} | "), encoding="utf-8")


FLIP = """
@dataclass(frozen=True, eq=False)
class Flip(IndexLine):
    axis: Axis
    loc: Location | None = None
"""
NORM = """
@dataclass(frozen=True, eq=False)
class Norm:
    out: Var
    of: Var
    loc: Location | None = None
"""
TURN = """
@dataclass(frozen=True)
class Turn:
    out: Name
    of: Operand
"""
CUT = """
@dataclass(frozen=True)
class Cut:
    value: Value
"""

# What a new index form has to be told to: its meaning and its notation. All passes read `netsor.indexing`.
KNOW_INDEX_FORMS = {"netsor/indexing.py", "netsor/text/notation.py"}

# Every pass over lines: what a new rule has to be told to.
KNOW_LINES = {
    "compilers/derive/nodes.py", "compilers/derive/rules.py", "netsor/run/execute.py",
    "compilers/limit/exact.py", "compilers/limit/outputs.py", "compilers/lowering/build/data.py",
    "compilers/sampler/linear.py", "compilers/sampler/paths.py", "netsor/checker/regularity/scalars.py",
    "netsor/checker/typing/lines.py", "netsor/checker/typing/structure.py", "netsor/facts.py",
    "netsor/passes/adjoints.py", "netsor/passes/bind.py", "netsor/passes/sgd/batch.py",
    "netsor/passes/sgd/relabel.py", "netsor/passes/unit_variance.py", "netsor/passes/unroll.py",
    "netsor/run/lines.py", "netsor/signs/flips.py", "netsor/text/formal.py", "netsor/text/printer.py",
    "netsor/types.py",
}  # fmt: skip

# Everything that reads values.
KNOW_VALUES = {
    "compilers/lowering/build/values.py", "compilers/render/structure.py", "compilers/render/writer.py",
    "compilers/symbolic/kernels.py",
}  # fmt: skip

# Everything that reads the statements of a plan, whatever they are.
KNOW_STATEMENTS = {
    "compilers/budget/statements.py", "compilers/lowering/printing/arrays.py",
    "compilers/lowering/printing/order.py", "compilers/native/statements.py",
}  # fmt: skip


def test_a_new_class_is_named_wherever_it_has_to_be_known(tmp_path: Path) -> None:
    _source(tmp_path)
    _insert(tmp_path, "netsor/ir.py", "IndexForm =", FLIP, "Flip")
    _insert(tmp_path, "netsor/ir.py", "Line =", NORM, "Norm")
    _insert(tmp_path, "compilers/derive/entries/values.py", "Value = (", CUT, "Cut")
    _insert(tmp_path, "compilers/lowering/plan/arrays.py", "Reading =", TURN, "Turn")
    found = [c for c in guards.complaints(tmp_path) if not c.is_chain]
    assert {c.path for c in found if "Flip" in c.text} == KNOW_INDEX_FORMS
    assert {c.path for c in found if "Norm" in c.text} == KNOW_LINES
    assert {c.path for c in found if "Cut" in c.text} == KNOW_VALUES
    assert {c.path for c in found if "Turn" in c.text} == KNOW_STATEMENTS


@dataclass(frozen=True)
class Twice:
    """A value, a part that holds values, indices, and a symbol of each sort."""

    value: values.Value
    law: values.Law
    at: tuple[indices.Index, ...]
    sym: values.Bound
    copy: indices.Copy


def test_a_new_value_is_traversed_by_the_types_of_its_fields() -> None:
    one, two, three = (indices.Sym(i, 4, indices.Copy.FIRST, "s") for i in range(3))
    number = values.Num(sp.Integer(2))
    sized = values.SizeValue(4, indices.Copy.FIRST)
    value: Any = Twice(number, values.Law((number,), (), (sized,)), (one, indices.Off(two, 1)), three, one.copy)
    assert list(traversal.children(value)) == [number, number, sized]
    assert list(traversal.indices(value)) == [one, indices.Off(two, 1)]
    assert traversal.symbols(value) == {one, two} and traversal.own_symbols(value) == ((three,), ())
    moved: Any = rewrite(value, indices.Renaming({two: one}, {indices.Copy.FIRST: indices.Copy.OWN}))
    assert moved.copy is moved.sym.copy is moved.law.means[0].copy is indices.Copy.OWN
    assert {s.number for s in traversal.symbols(moved)} == {0}
