"""A module exported at two widths and numbers of samples: sizes and constants that differ say how they scale."""

from __future__ import annotations

import inspect
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg
from torch.nn.utils.rnn import PackedSequence

from netsor.compilers.lift.findings import innermost, refused
from netsor.errors import Diagnostic, UnsupportedError

SAMPLES = (5, 7)
VALUES = (
    "control flow on values and shapes that depend on the data have no straight-line program; write it with tensor"
    " operations"
)
PACKED = (
    "packed sequences have shapes that depend on the lengths: pad them, and keep the state behind the last word, a cell"
    " in a loop with h = torch.where(keep[:, t, None], cell(x[:, t], h), h), or take a mean over the steps that count"
)
Size = tuple[int, int]  # a dimension in the two exports
SHAPES_ONLY = frozenset({
    "new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "sym_size",
})  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A number that differs between the two exports."""

    values: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Step:
    """A node of the graph and its twin of the other export; `kind` says what it depends on."""

    node: fx.Node
    twin: fx.Node
    kind: str  # "constant" | "data" | "activation" | "parameter"

    @property
    def name(self) -> str:
        return str(getattr(getattr(self.node.target, "overloadpacket", None), "__name__", self.node.target))

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The dimensions of a tensor."""
        return _sizes(self.node.meta.get("val"), self.twin.meta.get("val"))

    def sizes_of(self, i: int) -> tuple[Size, ...]:
        """The dimensions of the i-th of several tensors."""
        return _sizes(self.node.meta["val"][i], self.twin.meta["val"][i])


def _sizes(a: Any, b: Any) -> tuple[Size, ...]:
    return tuple((int(m), int(n)) for m, n in zip(a.shape, b.shape, strict=True))


@dataclass
class Exported:
    """The two graphs, step by step; `parameters` are names as the module has them, tied ones under the first."""

    modules: tuple[nn.Module, nn.Module]
    widths: Size
    steps: list[Step]
    parameters: dict[fx.Node, str]
    tensors: tuple[dict[fx.Node, Any], dict[fx.Node, Any]]  # buffers and constants
    inputs: list[fx.Node]
    result: Any = None
    values: tuple[dict[fx.Node, Any], dict[fx.Node, Any]] = field(default_factory=lambda: ({}, {}))

    def constant(self, step: Step) -> tuple[Any, Any]:
        """The values of a constant node in the two exports."""
        return evaluate(step.node, self.values[0]), evaluate(step.twin, self.values[1])

    def arguments(self, step: Step, read: Callable[[fx.Node], Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a node; numbers that differ are a Pair."""
        return paired(step.node.args, step.twin.args, read), paired(step.node.kwargs, step.twin.kwargs, read)


def paired(a: Any, b: Any, read: Callable[[fx.Node], Any]) -> Any:
    if isinstance(a, fx.Node):
        return read(a)
    if isinstance(a, tuple | list):
        if len(a) != len(b):
            return Pair((len(a), len(b)))
        return [paired(x, y, read) for x, y in zip(a, b, strict=True)]
    if isinstance(a, dict):
        return {key: paired(value, b[key], read) for key, value in a.items()}
    return a if a == b else Pair((a, b))


def evaluate(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    """The value of a node from those of the inputs it needs (kept in `known`)."""
    if node not in known:
        args = map_arg(node.args, lambda n: evaluate(n, known))
        kwargs = map_arg(node.kwargs, lambda n: evaluate(n, known))
        with torch.no_grad():
            known[node] = node.target(*args, **kwargs)  # type: ignore[operator]
    return known[node]


def samples(inputs: Sequence[torch.Tensor], count: int) -> tuple[torch.Tensor, ...]:
    """The first `count` samples, repeated from the start where there are fewer."""
    return tuple(x[torch.arange(count) % len(x)] for x in inputs)


def _program(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        previous = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # torch logs the graph that it failed on
        try:
            return torch.export.export(module, inputs, strict=False).run_decompositions({})
        except Exception as error:
            text = next(iter(str(error).strip().splitlines()), "").partition("(")[0].strip()
            raise UnsupportedError(Diagnostic(
                "NT800", "error", f"torch.export cannot trace the module: {type(error).__name__}: {text}",
                location=innermost(str(error)), hint=_remedy(module, inputs, error),
            )) from error  # fmt: skip
        finally:
            logging.disable(previous)


def _remedy(module: nn.Module, inputs: tuple[torch.Tensor, ...], error: Exception) -> str:
    """What to do about a module that cannot be traced."""
    takes = inspect.signature(module.forward)
    try:
        takes.bind(*inputs)
    except TypeError as wrong:
        return f"{wrong}: give one example for each input of forward{takes}, not {len(inputs)}"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    packed = any(isinstance(v, PackedSequence) for frame in frames for v in frame.f_locals.values())
    return PACKED if packed else VALUES


def export(make: Callable[[int], nn.Module], inputs: Sequence[torch.Tensor], widths: Size) -> Exported:
    """The module at both widths."""
    modules = (make(widths[0]), make(widths[1]))
    batches = [samples(inputs, count) for count in SAMPLES]
    programs = [_program(m, x) for m, x in zip(modules, batches, strict=True)]
    graphs = [list(p.graph.nodes) for p in programs]
    if [(n.op, str(n.target)) for n in graphs[0]] != [(n.op, str(n.target)) for n in graphs[1]]:
        raise _different(graphs)
    roles = [_roles(p, m) for p, m in zip(programs, modules, strict=True)]
    (parameters, tensors, users), (_, others, _) = roles
    values = (dict(tensors), dict(others))
    for known, graph, batch in zip(values, graphs, batches, strict=True):
        known.update(zip((n for n in graph if n.name in {u.name for u in users}), batch, strict=True))
    exported = Exported(modules, widths, [], parameters, (tensors, others), users, values=values)
    exported.steps = list(_steps(graphs, exported))
    exported.result = next(n for n in graphs[0] if n.op == "output").args[0]
    return exported


def _different(graphs: Sequence[Sequence[fx.Node]]) -> Exception:
    first = next((a for a, b in zip(*graphs, strict=False) if (a.op, a.target) != (b.op, b.target)), graphs[0][-1])
    return refused(
        "NT801", f"the graph depends on the width: the two exports differ at {first.name}",
        "the number and the kind of operations stay the same at every width", first,
    )  # fmt: skip


def _roles(program: Any, module: nn.Module) -> tuple[dict[fx.Node, str], dict[fx.Node, Any], list[fx.Node]]:
    first: dict[int, str] = {}
    names = {name: first.setdefault(id(p), name) for name, p in module.named_parameters(remove_duplicate=False)}
    parameters, tensors, users = {}, {}, []
    by_name = {n.name: n for n in program.graph.nodes}
    for spec in program.graph_signature.input_specs:
        node = by_name[spec.arg.name]
        match spec.kind.name:
            case "PARAMETER":
                parameters[node] = names[spec.target]
            case "BUFFER" | "CONSTANT_TENSOR":
                kept = program.state_dict if spec.target in program.state_dict else program.constants
                tensors[node] = kept[spec.target]
            case _:
                users.append(node)
    _unchanged(program)
    return parameters, tensors, users


def _unchanged(program: Any) -> None:
    for spec in program.graph_signature.output_specs:
        if "MUTATION" in spec.kind.name:
            node = next((n for n in program.graph.nodes if n.name == spec.arg.name), None)
            raise refused(
                "NT807", f"the forward pass changes {spec.target}",
                "a program is a function of its inputs: module.eval() stops batch normalisation from keeping"
                " statistics",
                node,
            )  # fmt: skip


def _steps(graphs: Sequence[Sequence[fx.Node]], exported: Exported) -> Iterator[Step]:
    kinds: dict[fx.Node, str] = {}
    for node, twin in zip(*graphs, strict=True):
        if node.op == "output":
            continue
        kinds[node] = _kind(node, kinds, exported)
        yield Step(node, twin, kinds[node])


def _kind(node: fx.Node, kinds: dict[fx.Node, str], exported: Exported) -> str:
    if node in exported.parameters:
        return "parameter"
    if node in exported.inputs:
        return "data"
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    used = {kinds[n] for n in node.all_input_nodes}
    if used & {"parameter", "activation"} and name not in SHAPES_ONLY:
        return "activation"
    return "data" if "data" in used and name not in SHAPES_ONLY else "constant"


__all__ = ["Exported", "Pair", "Size", "Step", "evaluate", "export", "samples"]
