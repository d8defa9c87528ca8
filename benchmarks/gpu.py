"""Kernels on a CUDA device: their errors against float64 on the CPU, and their throughput.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --backend native
    python benchmarks/gpu.py --device cpu --quick          # tries the script itself

A row per program, dtype and size of block. Errors are the largest of a kernel's entries, relative to its largest entry,
on a small batch that holds a near-duplicate; the exit status is 1 when one is above 1e-10 (float64) or 1e-5 (float32),
plus the standard error of a sampled kernel.
Throughput is that of larger batches, of as many inputs as take a quarter of a second: the median wall time of a call
between two synchronisations, after a warm-up. `--backend native` takes the compiled kernels, of the networks that they
cover; there is no row for others. Shares are of what the device does in a copy of 256 MB and in a product of matrices
in float32 (without TF32), measured at the start: the bytes are those of data and results, the operations those of
`kernel.cost`. An entry is one number of a layer's covariance: a pair of inputs, times
the pixels (flatten), or times the pairs of pixels, tokens, nodes or times. Nothing is measured after `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch

import netsor as ns
from netsor import programs

LARGEST = {"float64": 1e-10, "float32": 1e-5}  # errors
ENOUGH = 0.25  # seconds: a batch is not enlarged when a call takes this
Row = dict[str, Any]
Batch = Any  # a tensor, or a dict of them


@dataclass(frozen=True)
class Network:
    """`shape` is that of one input in the timings, `small` in the test of correctness."""

    program: Callable[[], ns.Program]
    shape: tuple[int, ...]
    small: tuple[int, ...]
    layers: int
    start: int  # inputs of the smallest batch that is timed
    most: int
    power: int = 2  # 1 when a layer's covariance couples a position with itself only
    graph: bool = False  # is there an adjacency A beside x?
    options: dict[str, Any] = field(default_factory=dict)

    def entries(self, shape: tuple[int, ...]) -> int:
        """Numbers of one pair of inputs in a layer."""
        positions = math.prod(shape[:-1])
        return positions if self.power == 1 else positions**2


def networks(quick: bool) -> dict[str, Network]:
    def mlp(phi: str) -> Network:
        return Network(lambda: programs.mlp(5, phi, var_w=2), (784,), (16,), 5, 1024, 16384)

    def cnn(readout: Any, power: int, start: int, most: int) -> Network:
        depth = 2 if quick else 10
        net = programs.cnn(depth, var_w=2 / 9, readout=readout)
        return Network(lambda: net, (32, 32, 3), (8, 8, 3), depth, start, most, power)

    def over(
        program: Callable[[], ns.Program], axis: int, layers: int, start: int, graph: bool = False, **options: Any
    ) -> Network:
        return Network(program, (axis, 16), (4, 16), layers, start, 512, 2, graph, options)

    return {
        "mlp relu": mlp("relu"),
        "mlp erf": mlp("erf"),
        "mlp tanh": mlp("tanh"),
        "cnn flatten": cnn("flatten", 1, 32, 1024),
        "cnn mean": cnn("mean", 2, 2, 32),
        "transformer": over(lambda: programs.transformer(2), 32, 2, 16),
        "gcn": over(lambda: programs.gcn(3, var_b=0.1), 32, 3, 16, graph=True),
        "rnn relu": over(lambda: programs.rnn("relu", "mean"), 32, 1, 16),
        "rnn tanh": over(lambda: programs.rnn("tanh", "mean"), 8, 1, 16),
        "batchnorm": over(lambda: programs.batchnorm_mlp(1 if quick else 2), 4, 1 if quick else 2, 2),
        "gru (sampled)": over(programs.gru, 4, 1, 4, samples=2**8 if quick else 2**14),
    }


def batch(net: Network, n: int, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Inputs whose second is close to the first; an adjacency for a graph network."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, *shape))
    x[1] = x[0] + 1e-4 * x[1]
    found = {"x": x}
    if net.graph:
        upper = np.triu(rng.random((n, shape[0], shape[0])) < 0.3, 1)
        found["A"] = (upper + np.swapaxes(upper, 1, 2)).astype(float)
    return found


def on(arrays: dict[str, np.ndarray], device: str, dtype: torch.dtype) -> Batch:
    found = {k: torch.as_tensor(v).to(device=device, dtype=dtype) for k, v in arrays.items()}
    return found["x"] if len(found) == 1 else found


def compiled(net: Network, device: str, dtype: torch.dtype, backend: str = "torch") -> ns.Kernel:
    return ns.compile(net.program(), device=device, dtype=dtype, backend=backend, **(net.options or {}))


def covered(net: Network, device: str, backend: str) -> bool:
    return backend != "native" or compiled(net, device, torch.float32, backend).backend.startswith("native")


@lru_cache(maxsize=4)
def peaks(device: str) -> tuple[float, float]:
    """Bytes a second of a copy, read and written, and operations a second of a product of matrices in float32."""
    size = 1 << (26 if device.startswith("cuda") else 22)
    x = torch.ones(size, device=device)
    side = 4096 if device.startswith("cuda") else 512
    y, a = torch.empty_like(x), torch.ones(side, side, device=device)
    y.copy_(x)  # the first calls prepare the device
    a @ a
    copied = min(seconds(lambda: y.copy_(x), device) for _ in range(5))
    multiplied = min(seconds(lambda: a @ a, device) for _ in range(5))
    return 2 * x.numel() * x.itemsize / copied, 2 * len(a) ** 3 / multiplied


# ---------------------------------------------------------------- correctness


def errors(net: Network, device: str, dtype: str, backend: str) -> tuple[dict[str, float], float]:
    """The largest error of each kernel relative to its largest entry in float64 on the CPU; the standard error."""
    arrays = batch(net, 3, net.small)
    exact = compiled(net, "cpu", torch.float64)(on(arrays, "cpu", torch.float64))
    kind = getattr(torch, dtype)
    found = compiled(net, device, kind, backend)(on(arrays, device, kind))
    out: dict[str, float] = {}
    spread = 0.0
    for name, value in exact.items():
        other = dict(found.items())[name]
        assert other.device.type == device.partition(":")[0] and other.dtype == kind, (other.device, other.dtype)
        out[name] = float((other.cpu().double() - value).abs().max() / value.abs().max())
        if exact.errors:  # the draws depend on rounding, but not the draws' distribution
            spread = max(spread, float(exact.errors[name].max() / value.abs().max()))
    return out, spread


# ---------------------------------------------------------------- throughput


def seconds(call: Callable[[], Any], device: str) -> float:
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - start


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


@dataclass
class Timed:
    """A batch of n inputs; `tile` inputs to a block, None where the library chose."""

    n: int
    tile: int | None
    call: Callable[[], Any]


def timed(
    net: Network, shape: tuple[int, ...], n: int, device: str, dtype: torch.dtype, block: str, backend: str
) -> Timed:  # fmt: skip
    """By the library's own blocks, or by blocks whose tensors have so many MB."""
    kernel = compiled(net, device, dtype, backend)
    x = on(batch(net, n, shape), device, dtype)
    if block == "default":
        return Timed(n, None, lambda: kernel(x))
    size = int(float(block) * 2**20) // (dtype.itemsize * net.entries(shape))
    tile = min(n, max(1, math.isqrt(size)))
    return Timed(n, tile, lambda: kernel.gram(x, tile=tile))


def grown(net: Network, device: str, dtype: torch.dtype, block: str, quick: bool, backend: str) -> Timed:
    """The largest batch, of those that double, before a call takes long or the memory ends; called once already."""
    n, last = (2, None) if quick else (net.start, None)
    while True:
        now = timed(net, net.small if quick else net.shape, n, device, dtype, block, backend)
        try:
            now.call()
            took = seconds(now.call, device)
        except torch.OutOfMemoryError:
            if last is None:
                raise
            return last
        if quick or took > ENOUGH or 2 * n > net.most:
            return now
        n, last = 2 * n, now


def work(net: Network, n: int, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[float, float]:
    """Bytes of the data and of both kernels, and operations, of the symmetric call; none known of sampled kernels."""
    bytes_ = dtype.itemsize * (n * math.prod(shape) + 2 * n * n)
    if net.options:
        return bytes_, math.nan
    lines = {line.out.name: line for line in net.program().lines if hasattr(line, "out")}
    names = {name: [d.axis.name for d in lines[name].out.dims] for name in batch(net, 2, shape)}
    sizes = {axis: shape[0] for found in names.values() for axis in found}
    sizes |= dict(zip(names["x"], shape, strict=False)) | {"feature": shape[-1]}
    return bytes_, float(compiled(net, "cpu", dtype).cost(n, sizes=sizes).operations)


def throughput(
    net: Network, device: str, dtype: str, block: str, repetitions: int, quick: bool, backend: str
) -> Row:  # fmt: skip
    kind = getattr(torch, dtype)
    found = grown(net, device, kind, block, quick, backend)
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    taken = statistics.median(seconds(found.call, device) for _ in range(repetitions))
    shape = net.small if quick else net.shape
    pairs, entries = found.n * (found.n + 1) // 2, net.entries(shape)
    bytes_, operations = work(net, found.n, shape, kind)
    copy, product = peaks(device)
    return {
        "block": block, "n": found.n, "tile": found.tile, "pairs": pairs, "entries_per_pair": entries,
        "layers": net.layers, "seconds": taken, "us_per_pair": taken / pairs * 1e6,
        "ns_per_entry_layer": taken / (pairs * entries * net.layers) * 1e9,
        "of_bandwidth": bytes_ / taken / copy, "of_fp32": operations / taken / product,
        "peak_bytes": torch.cuda.max_memory_allocated(device) if cuda else None,
    }  # fmt: skip


# ---------------------------------------------------------------- the command


def rows(a: argparse.Namespace) -> Iterator[Row]:
    """Errors of all networks first, then their throughput."""
    end = time.perf_counter() + a.seconds
    chosen = {k: v for k, v in networks(a.quick).items() if a.case in (k, "all") and covered(v, a.device, a.backend)}
    for name, net in chosen.items():
        for dtype in LARGEST:
            found, spread = errors(net, a.device, dtype, a.backend)
            ok = max(found.values()) <= LARGEST[dtype] + spread
            yield {"kind": "error", "program": name, "dtype": dtype, "device": a.device, **found, "ok": ok}
    for name, net in chosen.items():
        for dtype in LARGEST:
            for block in ["default"] if net.options else a.blocks.split(","):
                row: Row = {"kind": "throughput", "program": name, "dtype": dtype, "device": a.device, "block": block}
                row["backend"] = a.backend
                if time.perf_counter() > end:
                    yield {**row, "left_out": f"after {a.seconds:g} s"}
                else:
                    times = a.repetitions or (1 if a.quick else 5)
                    yield row | throughput(net, a.device, dtype, block, times, a.quick, a.backend)


def line(r: Row) -> str:
    start = f"{r['program']:14} {r['dtype']:8}"
    if r["kind"] == "error":
        return f"{start} {r['nngp']:10.1e} {r['ntk']:10.1e}  {'' if r['ok'] else 'TOO LARGE'}"
    if "left_out" in r:
        return f"{start} {r['block']:>8} left out: {r['left_out']}"
    tile = "" if r["tile"] is None else r["tile"]
    peak = "" if r["peak_bytes"] is None else f"{r['peak_bytes'] / 1e6:.0f}"
    return (
        f"{start} {r['block']:>8} {tile:>6} {r['n']:6} {r['seconds'] * 1e3:10.2f} {r['us_per_pair']:10.4f}"
        f" {r['ns_per_entry_layer']:12.5f} {r['of_bandwidth']:9.1%} {r['of_fp32']:8.1%} {peak:>8}"
    )


HEADS = {
    "error": f"{'program':14} {'dtype':8} {'NNGP':>10} {'NTK':>10}   error relative to the largest entry",
    "throughput": f"\n{'program':14} {'dtype':8} {'block MB':>8} {'tile':>6} {'n':>6} {'ms':>10} {'µs/pair':>10}"
    f" {'ns/entry·layer':>12} {'bandwidth':>9} {'FP32':>8} {'peak MB':>6}",
}  # fmt: skip


def name_of(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--case", choices=[*networks(True), "all"], default="all")
    parser.add_argument("--blocks", default="default,64", help="MB of one tensor of a block, or default; by commas")
    parser.add_argument("--backend", choices=["torch", "native"], default="torch")
    parser.add_argument("--repetitions", type=int, help="5; 1 with --quick")
    parser.add_argument("--seconds", type=float, default=400, help="nothing is begun after this time")
    parser.add_argument("--quick", action="store_true", help="small inputs, to try the script itself")
    parser.add_argument("--json", action="store_true", help="one object per line")
    a = parser.parse_args()
    if a.device.startswith("cuda") and not torch.cuda.is_available():
        print("skipped: torch finds no CUDA device", file=sys.stderr)
        return 0
    if not a.json:
        print(f"torch {torch.__version__}, {name_of(a.device)}")
    ok, kind = True, ""
    for r in rows(a):
        if not a.json and r["kind"] != kind:
            kind = r["kind"]
            print(HEADS[kind])
        print(json.dumps(r) if a.json else line(r), flush=True)
        ok = ok and r.get("ok", True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
