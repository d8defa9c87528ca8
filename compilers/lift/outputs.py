"""The outputs of a program from the result of a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from netsor import ir
from netsor.compilers.lift.findings import refused
from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.values import Outputs


def written(L: Lifter, values: Mapping[Any, Any]) -> Outputs:
    """Write the statements of the module's result."""
    result = L.exported.result
    nodes = list(result) if isinstance(result, tuple | list) else [result]
    found = [values[n] for n in nodes if n is not None]
    if len(found) != 1:
        raise refused("NT820", f"the module returns {len(found)} tensors", "return one output")
    if not isinstance(found[0], Outputs):
        raise refused(
            "NT808", "the module does not end with a readout: a linear layer from the width to a finite number"
            " of outputs",
            "add nn.Linear(n, k) as the last layer", nodes[0],
        )  # fmt: skip
    L.step = next(s for s in L.exported.steps if s.node is nodes[0])
    _write(L, found[0])
    return found[0]


def _write(L: Lifter, out: Outputs) -> None:
    for term in out.terms:
        if term.readout is not None and term.power != 0:
            what = "grows" if term.power > 0 else "vanishes"
            raise L.refuse(
                "NT811", f"the output {what} with the width, as n^{term.power} (readout {term.parameter})",
                "the readout has variance c/fan-in, and no further factor of the width",
            )  # fmt: skip
    network = [t for t in out.terms if t.readout is not None]
    width = network[0].readout.rows if network[0].readout is not None else None
    assert isinstance(width, ir.Width)
    for term in network:
        assert term.readout is not None and term.x is not None
        L.program.output(term.readout, term.x * term.coef)
        L.layouts = [replace(a, first=term.first) if a.parameter == term.parameter else a for a in L.layouts]
    first = L.program.outputs[0]
    dims = [d for d in first.vector.dims if d.axis not in first.readout.axes]
    for term in out.terms:
        if term.readout is None:
            _bias(L, term, width, dims)


def _bias(L: Lifter, term: Any, width: ir.Width, dims: Sequence[ir.Dim]) -> None:
    if term.power > 0:
        raise L.refuse("NT811", f"the output bias {term.parameter} grows with the width", "a constant variance")
    if term.parameter in L.vectors or term.parameter in L.arrays.rows:
        raise L.refuse("NT819", f"{term.parameter} is a bias of the output and is used elsewhere", "its own parameter")
    found = L.arrays.output_bias(term.parameter, L.label(term.parameter), width, dims, L.step.node)
    if found is not None:
        v, x = found
        L.lay(v, term.parameter, (), first=term.first)
        L.program.output(v, x * term.coef)


__all__ = ["written"]
