"""Kernels in stores: throughput and memory, two processes against one, workers of a Dask cluster, and kills.

    python benchmarks/store.py [--case processes|dask|kills] [--samples 20000] [--quick] [--json]

processes   all pairs of the samples by one process and by two, by turns: seconds, CPU-seconds, the largest resident
            size of any process, pairs a second, and the ratio of the two times
dask        one worker on a number of samples, two workers on twice as many pairs: seconds and the ratio, 1 at best
kills       ten kills at random of one process, of the parent of two, and under Dask of a worker, the scheduler and the
            client in turn: the store that comes of it is compared with an uninterrupted one, byte by byte

The network is a relu MLP of three hidden layers, inputs have 784 features and are float32. Every run is a process of
its own, with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
FEATURES, TILE = 784, 64  # and inputs per side of a block of the small stores that are killed


def fill(args: argparse.Namespace) -> None:
    """One store, as a process of its own; its last line is what it took."""
    import netsor as ns
    from netsor.compilers.store import connected

    x = np.random.default_rng(0).normal(size=(args.samples, FEATURES)).astype(np.float32)
    kernel = ns.compile(ns.programs.mlp(depth=3), dtype="float32")
    options: Row = {"store": args.fill, "processes": args.processes, "tile": args.tile, "progress": args.progress}
    cpu, start = time.process_time(), time.perf_counter()
    if args.scheduler is None:
        kernel.gram(x, **options)
    else:
        with connected(args.scheduler) as client:
            client.wait_for_workers(args.workers, timeout=120)
            start = time.perf_counter()
            kernel.gram(x, engine="dask", client=client, **options)
    seconds = time.perf_counter() - start
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, children.ru_maxrss)
    cpu = time.process_time() - cpu + children.ru_utime + children.ru_stime
    pairs = args.samples * (args.samples + 1) // 2
    print(json.dumps({
        "samples": args.samples, "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2),
        "peak_gb": round(peak * (1 if sys.platform == "darwin" else 1024) / 1e9, 3),
        "pairs_per_second": round(pairs / seconds),
    }))  # fmt: skip


def command(path: Path, samples: int, *options: str) -> list[str]:
    return [sys.executable, __file__, "--fill", str(path), "--samples", str(samples), *options]


def run(line: list[str]) -> Row:
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT)
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[tuple[Path, list[subprocess.Popen[bytes]]]]:
    """The file of a scheduler, and the processes: the scheduler first."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    started = [dask("scheduler", "--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(file))]
    try:
        while not file.exists():
            time.sleep(0.05)
        started += [worker(file) for _ in range(workers)]
        yield file, started
    finally:
        for process in started:
            process.kill()
            process.wait()


def dask(kind: str, *options: str) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard", *options]
    return subprocess.Popen(line, env=ENVIRONMENT, stderr=subprocess.DEVNULL)


def worker(file: Path) -> subprocess.Popen[bytes]:
    return dask("worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny")


def processes(folder: Path, samples: int, rounds: int) -> Iterator[Row]:
    """By turns, and the ratio of the medians."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for number in range(rounds):
        for count in (1, 2):
            path = folder / f"{number}-{count}.zarr"
            shown = ["--progress"] if number == 0 else []
            row = {"case": "processes", "processes": count} | run(
                command(path, samples, "--processes", str(count), *shown)
            )
            shutil.rmtree(path)
            seconds[count].append(row["seconds"])
            yield row
    one, two = (float(np.median(seconds[count])) for count in (1, 2))
    yield {"case": "processes", "ratio": round(one / two, 2)}


def weak(folder: Path, samples: int) -> Iterator[Row]:
    seconds: list[float] = []
    for workers in (1, 2):
        n = round(samples * workers**0.5)
        with cluster(folder, workers) as (file, _):
            warm = ["--scheduler", str(file), "--workers", str(workers)]
            run(command(folder / f"warm-{workers}.zarr", 4 * TILE, "--tile", str(TILE), *warm))
            row = run(command(folder / f"weak-{workers}.zarr", n, *warm))
        seconds.append(row["seconds"])
        yield {"case": "dask", "workers": workers} | row
    yield {"case": "dask", "ratio": round(seconds[0] / seconds[1], 2)}


def chunks(path: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(path)): f.read_bytes() for f in path.rglob("c/**/*") if f.name.isdecimal() and f.is_file()
    }


def kills(folder: Path, samples: int, count: int) -> Iterator[Row]:
    whole, chance = folder / "whole.zarr", random.Random(0)
    small = ["--tile", str(TILE)]
    run(command(whole, samples, *small))
    for number in (1, 2):
        path = folder / f"killed-{number}.zarr"
        line = command(path, samples, "--processes", str(number), *small)
        landed = sum(killed(line, path, chance) for _ in range(count))
        run(line)
        yield {"case": "kills", "processes": number, "kills": landed, "equal": chunks(path) == chunks(whole)}
    path, landed = folder / "killed-dask.zarr", 0
    for number in range(count):
        with cluster(folder, 1) as (file, started):
            line = command(path, samples, "--scheduler", str(file), *small)
            if number % 3 == 2:
                landed += killed(line, path, chance)
                continue
            caller = subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait(path, chance, caller)
            landed += caller.poll() is None
            scheduler, first = started
            (first if number % 3 == 0 else scheduler).kill()
            if number % 3 == 0:
                started.append(worker(file))
            caller.wait()
    with cluster(folder, 1) as (file, _):
        run(command(path, samples, "--scheduler", str(file), *small))
    yield {"case": "kills", "processes": "dask", "kills": landed, "equal": chunks(path) == chunks(whole)}


def wait(path: Path, chance: random.Random, caller: subprocess.Popen[bytes]) -> None:
    """Until some more blocks are there."""
    wanted = len(list(path.rglob("c/*/*"))) + chance.randrange(1, 6)
    while caller.poll() is None and len(list(path.rglob("c/*/*"))) < wanted:
        time.sleep(0.01)


def killed(line: list[str], path: Path, chance: random.Random) -> bool:
    caller = subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait(path, chance, caller)
    landed = caller.poll() is None
    caller.kill()
    caller.wait()
    return landed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", choices=("processes", "dask", "kills"), default="processes")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    for name in ("processes", "workers"):
        parser.add_argument(f"--{name}", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--tile", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    parser.add_argument("--progress", action="store_true", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fill is not None:
        fill(args)
        return
    samples = args.samples or {"processes": 20_000, "dask": 20_000, "kills": 1200}[args.case]
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(args, Path(folder), 200 if args.quick else samples)
        for row in rows:
            print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


def _rows(args: argparse.Namespace, folder: Path, samples: int) -> Iterator[Row]:
    if args.case == "processes":
        return processes(folder, samples, 1 if args.quick else args.rounds)
    return weak(folder, samples) if args.case == "dask" else kills(folder, samples, 1 if args.quick else 10)


if __name__ == "__main__":
    main()
