"""Torch modules, and their empirical kernels over draws of their own initialisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, jacrev, vmap

from netsor.compilers.finite.inputs import bind
from netsor.compilers.finite.kernels import ntk_terms
from netsor.compilers.finite.network import Network
from netsor.compilers.lift import Lifted, from_torch
from netsor.run.order import steps

Make = Callable[[int], nn.Module]


def gaussian(module: nn.Module) -> nn.Module:
    """Redraw uniform parameters of finite fan-in as Gaussian ones of the same variance (first layers)."""
    for m in module.modules():
        if isinstance(m, nn.Linear | nn.Conv1d | nn.Conv2d) and m.weight.shape[1] < 16:
            std = (3 * m.weight[0].numel()) ** -0.5
            nn.init.normal_(m.weight, std=std)
            if m.bias is not None:
                nn.init.normal_(m.bias, std=std)
    return module


class Net(nn.Module):
    """A module from its parts and its forward pass."""

    def __init__(self, forward: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, part)
        gaussian(self)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.run(self, *inputs)
        return found


def mlp(n: int) -> nn.Module:
    return gaussian(nn.Sequential(nn.Linear(6, n), nn.ReLU(), nn.Linear(n, 2 * n), nn.Tanh(), nn.Linear(2 * n, 1)))


def residual(n: int) -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> Any:
        x = m.a(x)
        x = x + F.gelu(m.b(x)) * 0.5
        return m.out(F.leaky_relu(x - F.silu(m.c(x))))

    return Net(forward, a=nn.Linear(6, n), b=nn.Linear(n, n), c=nn.Linear(n, n), out=nn.Linear(n, 2))


def tied(n: int) -> nn.Module:
    """One layer applied twice."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        x = F.relu(m.a(x))
        x = torch.erf(m.b(torch.erf(m.b(x))))
        return m.out(torch.tanh(x)).squeeze(-1)

    return Net(forward, a=nn.Linear(6, n), b=nn.Linear(n, n), out=nn.Linear(n, 1))


def cnn_pooled(n: int) -> nn.Module:
    return gaussian(nn.Sequential(
        nn.Conv2d(3, n, 3, padding=1), nn.ReLU(), nn.Conv2d(n, 2 * n, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * n, 1),
    ))  # fmt: skip


def cnn_flat(n: int) -> nn.Module:
    return gaussian(nn.Sequential(
        nn.Conv1d(3, n, 3, padding=1), nn.GELU(), nn.AvgPool1d(2), nn.Conv1d(n, n, 2, dilation=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(n * 2, n), nn.ReLU(), nn.Linear(n, 1),
    ))  # fmt: skip


def text(n: int) -> nn.Module:
    def forward(m: Any, ids: torch.Tensor) -> Any:
        return m.out(torch.tanh(m.f(m.ln(m.emb(ids)).mean(1))))

    return Net(forward, emb=nn.Embedding(7, n), ln=nn.LayerNorm(n), f=nn.Linear(n, n), out=nn.Linear(n, 1))


def attention(n: int) -> nn.Module:
    """Two heads, queries, keys and values from one matrix, scores times 1/d, post-norm."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        x = m.emb(x)
        B, T, n = x.shape
        q, k, v = m.qkv(x).reshape(B, T, 3, 2, n // 2).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-2, -1) / (n // 2)).softmax(-1)
        x = m.ln(x + m.o((a @ v).transpose(1, 2).reshape(B, T, n)))
        return m.out(x.mean(1))

    return Net(
        forward,
        emb=nn.Linear(4, n),
        qkv=nn.Linear(n, 3 * n),
        o=nn.Linear(n, n),
        ln=nn.LayerNorm(n),
        out=nn.Linear(n, 1),
    )


def parts(n: int) -> nn.Module:
    """cat, chunk, select and flip on finite axes, and a positional vector."""

    def forward(m: Any, x: torch.Tensor) -> Any:
        x = m.emb(x) + m.pos
        first, second = x.chunk(2, 1)
        x = torch.cat([F.relu(first), second.flip(1), x[:, 1:2]], 1)
        gate, value = m.f(x).chunk(2, -1)
        return m.out((torch.sigmoid(gate) * value).select(1, 0) + x[:, -1])

    pos = nn.Parameter(torch.randn(1, 4, n) * 0.5)
    return Net(forward, emb=nn.Linear(3, n), pos=pos, f=nn.Linear(n, 2 * n), out=nn.Linear(n, 1))


ZOO: dict[str, tuple[Make, tuple[int, ...]]] = {
    "mlp": (mlp, (6,)), "residual": (residual, (6,)), "tied": (tied, (6,)), "cnn_pooled": (cnn_pooled, (3, 4, 4)),
    "cnn_flat": (cnn_flat, (3, 8)), "text": (text, ()), "attention": (attention, (3, 4)), "parts": (parts, (4, 3)),
}  # fmt: skip


def inputs(name: str, count: int = 2) -> torch.Tensor:
    g = torch.Generator().manual_seed(3)
    shape = ZOO[name][1]
    if name == "text":
        return torch.randint(7, (count, 4), generator=g)
    return torch.randn(count, *shape, generator=g, dtype=torch.float64)


NOT_MAPPED = (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)  # torch.func.vmap has no rule


def empirical(make: Make, x: Any, n: int, draws: int, rates: Mapping[str, float]) -> tuple[torch.Tensor, ...]:
    """f fᵀ and Σ_p η_p ∂f ∂fᵀ of the first output, one matrix per draw."""
    first = make(n)
    names = [name for name, _ in first.named_parameters() if rates.get(name)]
    large = sum(p.numel() for p in first.parameters()) > 3e5
    if large or isinstance(x, tuple) or any(isinstance(m, NOT_MAPPED) for m in first.modules()):
        parts = [_of_one(make(n).double(), x, names, rates) for _ in range(draws)]
        return tuple(torch.stack(part) for part in zip(*parts, strict=True))
    modules = [make(n).double() for _ in range(draws)]
    stacked = {k: torch.stack([dict(m.named_parameters())[k].detach() for m in modules]) for k, _ in
               modules[0].named_parameters()}  # fmt: skip

    def f(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = functional_call(modules[0], {**others, **some}, (x,))
        return out.reshape(len(x), -1)[:, 0]

    def kernels(params: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        some = {k: params[k] for k in names}
        jac = jacrev(f)(some, params)
        ntk = sum((rates[k] * (j.flatten(1) @ j.flatten(1).T) for k, j in jac.items()), torch.zeros(()))
        y = f(some, params)
        return y[:, None] * y[None, :], ntk

    found = [vmap(kernels)({k: v[i : i + 20] for k, v in stacked.items()}) for i in range(0, draws, 20)]
    return tuple(torch.cat(part) for part in zip(*found, strict=True))


def _of_one(
    module: nn.Module, x: Any, names: Sequence[str], rates: Mapping[str, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    y = module(*x if isinstance(x, tuple) else (x,))
    y = y.reshape(len(y), -1)[:, 0]
    params = [dict(module.named_parameters())[name] for name in names]
    grads = [torch.autograd.grad(v, params, retain_graph=True, materialize_grads=True) for v in y]
    ntk = torch.zeros(len(y), len(y), dtype=y.dtype)
    for name, column in zip(names, zip(*grads, strict=True), strict=True):
        j = torch.stack([g.flatten() for g in column])
        ntk = ntk + rates[name] * (j @ j.T)
    y = y.detach()
    return y[:, None] * y[None, :], ntk


def replayed(lifted: Lifted, module: nn.Module, x: Any, n: int) -> tuple[tuple[torch.Tensor, ...], ...]:
    """(f fᵀ, Θ) of the program with the module's own arrays at its width, and of the module: one network."""
    module = module.double()
    gone = {row.parameter for row in lifted.rows if row.array == "0 in the limit"}
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.mul_(0 if name in gone else 1)
    (group,) = bind(lifted.program, lifted.arrange(*x) if isinstance(x, tuple) else lifted.arrange(x))
    network = Network(lifted.program, steps(lifted.program.lines), group, n)
    arrays = lifted.arrays(module)
    fixed = {line.out.name: torch.ones(network.binding.dimension(line.out.rows), dtype=torch.float64)
             for line in lifted.program.lines if line.out.name.startswith("one ")}  # fmt: skip
    result = network.run(arrays | fixed)
    y = result.outputs["f"].detach().reshape(len(network.group.samples), -1)[:, 0]
    terms = ntk_terms([network], [result], arrays | fixed, "f", "autograd")
    ntk = sum((t.detach().reshape(len(y), len(y), -1)[..., 0] for t in terms.values()), torch.zeros(()).double())
    rates = lifted.rates(n)
    names = [name for name, _ in module.named_parameters() if rates.get(name)]
    return (y[:, None] * y[None, :], ntk), _of_one(module, x, names, rates)


def floats(x: Any) -> tuple[torch.Tensor, ...]:
    """Inputs as the modules take them when they are lifted."""
    return tuple(t.float() if t.is_floating_point() else t for t in (x if isinstance(x, tuple) else (x,)))


def same_as_module(make: Make, x: Any, n: int = 12) -> Lifted:
    """The lifted program is the module at width n, and says of each parameter what became of it."""
    torch.manual_seed(1)
    lifted = from_torch(make, floats(x), parametrisation="ntk")
    for a, b in zip(*replayed(lifted, make(n), x, n), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)
    arrays = {line.out.name for line in lifted.program.lines}
    rows = {row.parameter: row.array for row in lifted.rows}
    for parameter, _ in make(32).named_parameters():
        said_so = any(parameter in f.message for f in lifted.findings if f.code in ("NT809", "NT818"))
        assert rows.get(parameter) in arrays or said_so, parameter
    return lifted


def scores(
    lifted: Lifted, make: Make, x: Any, limits: Sequence[torch.Tensor], n: int, draws: int, errors: Any = (0.0, 0.0)
) -> float:  # fmt: skip
    """The largest |z| of the kernels extrapolated in 1/n from n and 2n against the limits (NNGP, NTK).

    `errors` are standard errors of the limits.
    """
    small, large = (empirical(make, x, m, draws, lifted.rates(m)) for m in (n, 2 * n))
    worst = 0.0
    for a, b, limit, own in zip(small, large, limits, errors, strict=True):
        mean = 2 * b.mean(0) - a.mean(0)
        error = ((4 * b.var(0) + a.var(0)) / draws + own**2).sqrt()
        worst = max(worst, float(((mean - limit) / error).abs().max()))
    return worst


__all__ = ["ZOO", "empirical", "floats", "inputs", "same_as_module", "scores"]
