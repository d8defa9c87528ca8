"""`ns.from_torch`: an ordinary torch module as a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, cast

import torch
from torch import nn

from netsor.build.program import Program
from netsor.compilers.lift.arrays import Arrays, Parametrisation, Row
from netsor.compilers.lift.data import DataArrays, Together
from netsor.compilers.lift.export import Exported, Step, export
from netsor.compilers.lift.family import family
from netsor.compilers.lift.findings import finding, location_of, refused
from netsor.compilers.lift.inputs import arranged, check_samples
from netsor.compilers.lift.laws import Law, laws
from netsor.compilers.lift.layout import Layout
from netsor.compilers.lift.lifter import Facts, Lifter, Restart
from netsor.compilers.lift.outputs import written
from netsor.compilers.lift.rules import RULES, near
from netsor.compilers.lift.values import Constant, Data, Input, Outputs, Parameter
from netsor.errors import Diagnostic, InputError

Make = Callable[[int], nn.Module]
Attention = Literal["as_is", "1/d"]


@dataclass(frozen=True)
class Lifted:
    """A module's program; `rows` says of each parameter what became of it.

    Kernels are of one output coordinate: the coordinates of a readout are i.i.d.

    >>> from torch.nn import Linear, Sequential
    >>> lifted = ns.from_torch(lambda n: Sequential(Linear(3, n), Linear(n, 1)), torch.ones(2, 3))
    >>> sorted(lifted.rates(100))
    ['0.bias', '0.weight', '1.bias', '1.weight']
    """

    program: Program
    findings: tuple[Diagnostic, ...]
    rows: tuple[Row, ...]
    exported: Exported
    inputs: Mapping[str, Input]
    layouts: tuple[Layout, ...]

    @property
    def __netsor_holds__(self) -> Program:
        """`ns.check`, `ns.compile` and the others take this object as its program."""
        return self.program

    def arrange(self, *inputs: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        """The program's arrays from the module's inputs: one array, or a dict by name."""
        arrays = {name: arranged(self.exported, spec, inputs) for name, spec in self.inputs.items()}
        return next(iter(arrays.values())) if len(arrays) == 1 else arrays

    def arrays(self, module: nn.Module) -> dict[str, torch.Tensor]:
        """The ω of the program's arrays by name, from the parameters of a module of the family.

        With them the program at the module's width is the module: its first output, and Θ = Σ_p η_p ⟨∂f/∂p, ∂f̄/∂p⟩.
        Parameters that are 0 in the limit are left out.
        """
        named, width = dict(module.named_parameters()), self.exported.widths[0]
        n = _width_of(named, self.exported)
        return {a.var.name: a.read(named[a.parameter], n, width) for a in self.layouts}

    def rates(self, n: int) -> dict[str, float]:
        """η_p(n): the kernel is lim Σ_p η_p(n) ⟨∂f/∂p, ∂f̄/∂p⟩."""
        return {row.parameter: row.rate.at(n) for row in self.rows}

    def table(self) -> str:
        """One row for each parameter: shape, array, law of the initial values, fan-in, rate η of the NTK (Markdown)."""
        head = ("parameter", "shape", "array", "role", "initial values", "fan-in", "η")
        body = [(r.parameter, r.shape, r.array, r.role, r.law, str(r.fan_in or "–"), str(r.rate)) for r in self.rows]
        return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *body))


def from_torch(
    make: Make | nn.Module, example_inputs: torch.Tensor | Sequence[torch.Tensor], *,
    widths: tuple[int, int] | Set[int] = (64, 96), parametrisation: Parametrisation = "as_is",
    attention: Attention = "as_is",
) -> Lifted:  # fmt: skip
    """The program of `make(n)` as n → ∞, with Θ = lim Σ_p η_p(n) ⟨∂f/∂p, ∂f̄/∂p⟩.

    `make` builds the module at a width with its own initialiser; samples are the first dimension of every input.
    Instead of `make` a module, with the set of the sizes that are widths: `widths={256, 512}`.
    "as_is": η is one rate for all parameters, n^k with the largest k at which the kernel is finite (1/n for torch's
    own layers). "ntk": η_p = 1/fan-in of each matrix and 1 for vectors. What has no limit or no rule raises
    UnsupportedError (NT8xx); `findings` are the warnings. attention="1/d" reads scores q·k/√d, which stay random, as
    q·k/d.

    >>> def make(n):
    ...     return torch.nn.Sequential(torch.nn.Linear(3, n), torch.nn.Tanh(), torch.nn.Linear(n, 1))
    >>> x = torch.ones(2, 3)
    >>> lifted = ns.from_torch(make, x, parametrisation="ntk")
    >>> ns.compile(lifted)(lifted.arrange(x)).ntk.shape
    torch.Size([2, 2])
    """
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    if isinstance(make, nn.Module) and isinstance(widths, Set):
        make, base = family(make, widths)
        widths = (base, 2 * base)
    _check_arguments(make, inputs, widths, parametrisation, attention)
    assert not isinstance(widths, Set) and not isinstance(make, nn.Module)
    with torch.random.fork_rng(devices=[]):
        exported = export(make, inputs, widths)
        known = laws(make, widths[0])  # after the graph is known not to depend on the width
    _check_values(exported)
    _check_randomness(exported)
    first = _lifted(exported, known, parametrisation, None, attention)
    if parametrisation == "ntk":
        return _result(*first)
    natural = first[0].arrays.natural
    trained = [e for name, e in natural.items() if first[0].arrays.trained[name]]
    return _result(*_lifted(exported, known, parametrisation, min(trained, default=Fraction(0)), attention))


def _check_arguments(make: Any, inputs: Sequence[Any], widths: Any, parametrisation: Any, attention: Any) -> None:
    def bad(message: str, hint: str) -> InputError:
        return InputError(message, code="NT616", severity="error", hint=hint)

    if isinstance(make, nn.Module) or not callable(make):
        raise bad(f"make is a function of the width that builds the module, got {type(make).__name__}",
                  "ns.from_torch(lambda n: Net(n), x): the limit is of a family of modules; or widths={64}, the sizes"
                  " of a module that grow")  # fmt: skip
    if not inputs or any(not isinstance(x, torch.Tensor) or x.ndim == 0 or len(x) == 0 for x in inputs):
        raise bad(
            "example_inputs are tensors with samples in the first dimension", "ns.from_torch(make, torch.randn(2, 10))"
        )
    if isinstance(widths, Set) or len(set(widths)) != 2 or any(not isinstance(n, int) or n < 2 for n in widths):
        raise bad(f"widths are two different whole numbers, got {widths}", "widths=(64, 96)")
    if parametrisation not in ("as_is", "ntk"):
        raise bad(f"parametrisation is 'as_is' or 'ntk', got {parametrisation!r}", "see the page on PyTorch")
    if attention not in ("as_is", "1/d"):
        raise bad(f"attention is 'as_is' or '1/d', got {attention!r}", "'1/d' reads scores q·k/√d as q·k/d")


def _check_values(exported: Exported) -> None:
    """Different parameters start independent."""
    seen: dict[bytes, str] = {}
    for name, p in exported.modules[0].named_parameters():
        values = p.detach().flatten()
        if len(values) < 2 or bool((values == values[0]).all()):
            continue
        key = values.cpu().numpy().tobytes()
        if key in seen:
            raise refused(
                "NT823", f"{seen[key]} and {name} are two parameters that start with the same random values",
                "use one parameter twice, or initialise each (copies by deepcopy are not initialised anew)",
            )  # fmt: skip
        seen[key] = name


def _check_randomness(exported: Exported) -> None:
    for step in exported.steps:
        tags = getattr(step.node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded not in tags or (step.name not in RULES and step.kind == "activation"):
            continue
        off = "dropout" in step.name and (len(step.node.args) < 3 or not step.node.args[2])
        if step.kind != "activation" and not off:
            raise refused(
                "NT816", f"{step.name} draws random numbers in the forward pass: the network is no function"
                " of its arrays",
                "module.eval() turns dropout off; noise is given as data", step.node,
            )  # fmt: skip


def _width_of(named: Mapping[str, torch.Tensor], exported: Exported) -> int:
    """The reference width of a module, from the first dimension that grows."""
    small, large = (dict(m.named_parameters()) for m in exported.modules)
    for name, p in named.items():
        for size, a, b in zip(p.shape, small[name].shape, large[name].shape, strict=True):
            if a != b:
                return size * exported.widths[0] // a
    return exported.widths[0]


# ---------------------------------------------------------------- the passes


def _lifted(
    exported: Exported,
    known: Mapping[str, Law],
    parametrisation: Parametrisation,
    common: Fraction | None,
    attention: Attention,
) -> tuple[Lifter, Outputs]:
    """The program of an export; a new fact about a parameter's dimension starts it again."""
    facts = Facts()
    while True:
        module = exported.modules[0]
        p = Program(type(module).__name__.lower())
        p.width("n")
        named = dict(module.named_parameters())
        trained = {name: q.requires_grad for name, q in named.items()}
        shapes = {name: "×".join(map(str, _shape(exported, name))) for name in named}
        arrays = Arrays(p, known, trained, shapes, parametrisation, common)
        lifter = Lifter(p, exported, arrays, facts, DataArrays(p, exported, facts.groups), attention)
        try:
            return lifter, _interpreted(lifter)
        except Restart as restart:
            facts = restart.facts
        except Together as found:
            facts = replace(facts, groups={**facts.groups, found.parameter: found.steps})


def _shape(exported: Exported, name: str) -> list[str]:
    """The shape, with multiples of the width n."""
    m = exported.widths[0]
    small, large = (dict(x.named_parameters())[name].shape for x in exported.modules)
    return [str(a) if a == b else "n" if a == m else f"{Fraction(a, m)}n" for a, b in zip(small, large, strict=True)]


def _interpreted(L: Lifter) -> Outputs:
    exported = L.exported
    values: dict[Any, Any] = {}
    for step in exported.steps:
        L.step = step
        if step.kind == "parameter":
            name = exported.parameters[step.node]
            sizes = step.sizes
            values[step.node] = Parameter(name, sizes, tuple(range(len(sizes))))
        elif step.kind == "activation":
            before = len(L.program.lines)
            values[step.node] = _applied(L, step, values)
            L.program.locate(before, location_of(step.node))
        elif step.kind == "data":
            values[step.node] = _checked_data(exported, step)
        else:
            first, second = exported.constant(step)
            sizes = step.sizes if isinstance(first, torch.Tensor) else ()
            values[step.node] = Constant(sizes, (first, second))
    return written(L, values)


def _checked_data(exported: Exported, step: Step) -> Any:
    """A data tensor; samples that meet already there are refused when it is used."""
    return Data(step) if isinstance(step.node.meta.get("val"), torch.Tensor) else None


def _applied(L: Lifter, step: Step, values: Mapping[Any, Any]) -> Any:
    if step.name.endswith("getitem>") or "getitem" in step.name:
        source, index = step.node.args
        found: Any = values[source]
        return found[cast(int, index)] if isinstance(found, list) else found
    if step.name not in RULES:
        others = near(step.name)
        raise refused(
            "NT803", f"the operation {step.name} has no rule",
            f"near operations that have one: {others}" if others else "the page on PyTorch lists the operations",
            step.node,
        )  # fmt: skip
    args, kwargs = L.exported.arguments(step, lambda n: values[n])
    for name in ("dtype", "layout", "device", "pin_memory", "memory_format"):
        kwargs.pop(name, None)
    return RULES[step.name](L, *args, **kwargs)


def _result(L: Lifter, out: Outputs) -> Lifted:
    check_samples(L)
    rows = L.arrays.rows
    notes = list(L.arrays.findings)
    for name in dict(L.exported.modules[0].named_parameters()):
        if name not in rows:
            notes.append(finding(
                "NT809", f"the parameter {name} does not reach the output", "leave it out of the module", None,
                "warning",
            ))  # fmt: skip
        elif rows[name].array == "0 in the limit":
            notes.append(finding(
                "NT818", f"{name} is no part of the limit: its initial values ({rows[name].law}) vanish, and it is not"
                " trained",
                "parametrisation='ntk' trains vectors at the rate 1", None, "warning",
            ))  # fmt: skip
    return Lifted(L.program, tuple(notes), tuple(rows.values()), L.exported, L.data.specs, tuple(L.layouts))


__all__ = ["Lifted", "from_torch"]
