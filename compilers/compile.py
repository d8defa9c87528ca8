"""`ns.compile`, `ns.derive`, `ns.v_transform`: from a program to its kernels."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from netsor.build.declared import Holder, as_program
from netsor.build.program import Program
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.derive.recursion import derive as _derive
from netsor.compilers.evaluate import transforms
from netsor.compilers.evaluate.arguments import Array, Get, as_draws, wanted_names
from netsor.compilers.evaluate.arrays import as_covariance
from netsor.compilers.kernel import DEFAULT, Kernel
from netsor.compilers.lowering.load import program_for
from netsor.compilers.native.choice import Backend, of_fuse
from netsor.errors import CheckError, Diagnostic, InputError
from netsor.functions import Function
from netsor.passes.unit_variance import unit_variance

Convention = Literal["omega", "unit"]


def compile(
    p: Program | Holder, device: str | torch.device | None = None, dtype: torch.dtype | str | None = None,
    assume_gia: bool = False, fuse: bool = False, tol: float | None = None, samples: int | None = None, seed: int = 0,
    output: str | None = None, convention: Convention = "omega", backend: Backend = "auto",
    threads: int | None = None,
) -> Kernel:  # fmt: skip
    """The infinite-width kernels of a program; see Kernel. `output` chooses one of several named outputs.

    Raises CheckError when the gradient independence assumption is not known to be valid (`ns.check(p).gia_valid`),
    unless `assume_gia=True`; the results then say so. Kernels without an exact rule are sampled (`result.method`,
    `result.errors`) from `samples` draws, or until the standard error is at most `tol` relative to √(K_ii K_jj) (1e-3
    by default, or as near as 2 GB and 2²¹ draws allow).

    `convention` says which array is trained: "omega", W = multiplier · ω/√cols with ω ~ N(0, var) as in the paper, or
    "unit", ω with variance 1 and its scale in the multiplier as in neural-tangents (`ns.unit_variance`): the NTK's
    term of an array of variance σ² is σ² times the other's.

    `backend="native"` evaluates the blocks by a C function, which the machine's C compiler makes once for a kernel and
    a cache on disk keeps; "auto" does so where the kernel has one and the calls take so long that it pays, or the
    function is there already; "torch" never (`kernel.backend`). On CUDA "native" compiles kernels for the device.
    `threads` share the rows (`torch.get_num_threads()` by default). `fuse=True` warns: it is "native".

    >>> kernel = ns.compile(ns.programs.mlp())
    >>> kernel([[1.0, 1.0]]).ntk  # ¾‖x‖²/d + 7/4 (Tensor Programs II, E.1)
    tensor([[2.5000]], dtype=torch.float64)
    """
    program = as_program("ns.compile", p, parameters=True)
    if output is not None:
        program = with_output(program, output)
    if not assume_gia:
        refuse_unless_valid(program)
    program, draws = in_convention(program, convention), as_draws(tol, samples, seed)
    chosen = of_fuse(backend) if fuse else backend
    return Kernel(program, device, dtype, assume_gia, draws, convention, chosen, threads)


def in_convention(p: Program, convention: str) -> Program:
    """The program in a convention of trained arrays."""
    if convention not in get_args(Convention):
        raise InputError(f"convention is 'omega' or 'unit', got {convention!r}", code="NT605")
    return unit_variance(p) if convention == "unit" else p


def with_output(p: Program, name: str) -> Program:
    """The program with the outputs of one name; its backward pass is made anew."""
    names = list(dict.fromkeys(o.name for o in p.outputs))
    if name not in names:
        raise InputError(f"{p.name} has no output {name!r} (it has {', '.join(names)})", code="NT605")
    if len(names) == 1:
        return p
    from netsor.passes.backward import forward_part

    forward = forward_part(p) if p.gradients else p
    outputs = [o for o in forward.outputs if o.name == name]
    return Program.from_parts(p.name, forward.widths, forward.lines, outputs, (), forward.returned, forward.functions)


def refuse_unless_valid(p: Program) -> None:
    """CheckError with the checker's first finding when gia_valid is not True."""
    from netsor.checker.checks import check

    report = check.independence(p)
    if report.gia_valid is True and report.simple_gia is not False:
        return
    errors = [d for d in report.diagnostics if d.severity == "error" and d.code.startswith("NT2")]
    reason = report.reasons.get("gia_valid", "")
    first = errors[0] if errors else Diagnostic("NT201", "error", f"{p.name}: {reason}")
    raise CheckError(
        Diagnostic(
            first.code, "error", f"{p.name} is not compiled: {first.message}", first.variable, first.line, first.clause,
            first.location, "assume_gia=True compiles it all the same; ns.limit gives the true limit",
        )
    )  # fmt: skip


def derive(p: Program | Holder, get: Get = DEFAULT) -> Recursion:
    """The recursion of the kernels asked for: entries, `str`, `.latex()`, `.markdown()`, `.symbolic(…)`.

    >>> import sympy
    >>> ns.derive(ns.programs.mlp()).symbolic(gram=sympy.Symbol("q")).ntk
    3*q/4 + 7/4
    """
    wanted = wanted_names(get)
    return _derive(program_for(as_program("ns.derive", p, parameters=True, abstract=True), wanted), wanted)


def v_transform(phi: str | Function, K: Array, psi: str | Function | None = None) -> Tensor:
    """V_φ(K) = E φ(z)ψ(z)ᵀ for z ~ N(0, K), ψ = φ by default (Tensor Programs II, Definition E.1).

    K is a covariance matrix, or a batch of them `[…, k, k]`; the result has its shape. `phi.prime` is the derivative.

    >>> ns.v_transform(ns.relu, torch.eye(2, dtype=torch.float64))  # ½ and 1/2π
    tensor([[0.5000, 0.1592],
            [0.1592, 0.5000]], dtype=torch.float64)
    """
    from netsor.compilers.expectation import v_transform as transform
    from netsor.compilers.lowering.functions import as_fn
    from netsor.functions import as_function

    if isinstance(K, Tensor) and transforms.inside(K):
        return transforms.transformed(lambda k: (v_transform(phi, k, psi),), [K])[0]
    second = None if psi is None else as_fn(as_function(psi))
    return transform(as_fn(as_function(phi)), as_covariance(K), second)
