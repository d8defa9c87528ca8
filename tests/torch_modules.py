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
SLOW_MAPPED = (nn.modules.conv._ConvNd,)  # convolutions of many kernels at once are grouped ones


def empirical(make: Make, x: Any, n: int, draws: int, rates: Mapping[str, float]) -> tuple[torch.Tensor, ...]:
    """f fᵀ, the mean of the outputs, and Σ_p η_p ∂f ∂fᵀ of the first one: one matrix per draw.

    Networks of more than a million parameters are drawn in single precision.
    """
    first = make(n)
    kind = torch.float64 if sum(p.numel() for p in first.parameters()) < 1e6 else torch.float32
    names = [name for name, _ in first.named_parameters() if rates.get(name)]
    if isinstance(x, tuple) or any(isinstance(m, NOT_MAPPED + SLOW_MAPPED) for m in first.modules()):
        inputs = x if kind == torch.float64 else floats(x)
        parts = [one_network(make(n).to(kind), inputs, names, rates) for _ in range(draws)]
        return tuple(torch.stack(part) for part in zip(*parts, strict=True))
    modules = [make(n).double() for _ in range(draws)]
    stacked = {k: torch.stack([dict(m.named_parameters())[k].detach() for m in modules]) for k, _ in
               modules[0].named_parameters()}  # fmt: skip

    def f(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = functional_call(modules[0], {**others, **some}, (x,))
        return out.reshape(len(x), -1)

    def kernels(params: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        some = {k: params[k] for k in names}
        jac = jacrev(lambda p: f(p, params)[:, 0])(some)
        ntk = sum((rates[k] * (j.flatten(1) @ j.flatten(1).T) for k, j in jac.items()), torch.zeros(()))
        return of_outputs(f(some, params)), ntk

    found = [vmap(kernels)({k: v[i : i + 20] for k, v in stacked.items()}) for i in range(0, draws, 20)]
    return tuple(torch.cat(part) for part in zip(*found, strict=True))


def of_outputs(y: torch.Tensor) -> torch.Tensor:
    """f fᵀ of the i.i.d. outputs [sample, output]."""
    return y @ y.T / y.shape[1]


def one_network(
    module: nn.Module, x: Any, names: Sequence[str], rates: Mapping[str, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The two matrices of one draw: a forward pass, and a vector-Jacobian product for each sample."""
    y = module(*x if isinstance(x, tuple) else (x,))
    y = y.reshape(len(y), -1)
    params = [dict(module.named_parameters())[name] for name in names]
    grads = [torch.autograd.grad(v, params, retain_graph=True, materialize_grads=True) for v in y[:, 0]]
    ntk = torch.zeros(len(y), len(y), dtype=y.dtype)
    for name, column in zip(names, zip(*grads, strict=True), strict=True):
        j = torch.stack([g.flatten() for g in column])
        ntk = ntk + rates[name] * (j @ j.T)
    return of_outputs(y.detach()), ntk


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
    theirs = one_network(module, x, names, rates)
    return (y[:, None] * y[None, :], ntk), (_first_output(module, x), theirs[1])


def _first_output(module: nn.Module, x: Any) -> torch.Tensor:
    with torch.no_grad():
        y = module(*x if isinstance(x, tuple) else (x,))
    return of_outputs(y.reshape(len(y), -1)[:, :1])


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
    drawn = {m: empirical(make, x, m, draws, lifted.rates(m)) for m in (n, 2 * n)}
    return max(float(z.abs().max()) for z in extrapolated(drawn, limits, errors))


def extrapolated(
    drawn: Mapping[int, Sequence[torch.Tensor]], limits: Sequence[torch.Tensor], errors: Any = (0.0, 0.0)
) -> list[torch.Tensor]:  # fmt: skip
    """z of every entry: the value at 1/n = 0 of the least squares line (of four widths: parabola) in 1/n."""
    found = []
    u = torch.tensor([[float(n) ** -k for k in range(1 + len(drawn) // 2)] for n in drawn], dtype=torch.float64)
    weights = torch.linalg.pinv(u)[0]
    for i, (limit, own) in enumerate(zip(limits, errors, strict=True)):
        parts = list(zip(weights.tolist(), (d[i].double() for d in drawn.values()), strict=True))
        mean = sum((w * d.mean(0) for w, d in parts), torch.zeros(()))
        error = sum((w**2 * d.var(0) / len(d) for w, d in parts), torch.zeros(())).add(own**2).sqrt()
        found.append((mean - limit) / error)
    return found


__all__ = ["ZOO", "empirical", "extrapolated", "floats", "inputs", "one_network", "same_as_module", "scores"]
