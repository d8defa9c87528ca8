"""Kernels in stores: throughput and memory, two processes against one, workers of a Dask cluster, and kills.

    python benchmarks/store.py [--case processes|dask|kills] [--samples 20000] [--rounds 5] [--quick] [--json]

processes   all pairs of the samples by one process and by two, by turns: seconds, CPU-seconds, the largest resident
            size of any process, pairs a second, the load of the machine before, the ratio of the two times of each
            round, and the median of these
dask        one worker on a number of samples, two workers on twice as many pairs, by turns: seconds, CPU-seconds of
            the workers, and the ratios, 1 at best
kills       ten kills at random moments of one process, of two (the parent and the other in turn), and under Dask of
            the client, a worker and the scheduler in turn. The next run goes on; the store that comes of it is
            compared with an uninterrupted one, byte by byte

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
import signal
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
Running = subprocess.Popen[bytes]
QUIET = subprocess.DEVNULL
FEATURES = 784
TILE, KILLED = 64, 32  # inputs per side of a block of small stores, and of those that are killed
QUICK = {"processes": 200, "dask": 200, "kills": 1000}  # samples
VICTIMS = ("client", "worker", "scheduler")


def fill(args: argparse.Namespace) -> None:
    """One store, as a process of its own; its last line is what it took."""
    import netsor as ns
    from netsor.compilers.store import connected

    x = np.random.default_rng(0).normal(size=(args.samples, FEATURES)).astype(np.float32)
    kernel = ns.compile(ns.programs.mlp(depth=3), dtype="float32")
    options: Row = {"store": args.fill, "processes": args.processes, "tile": args.tile}
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
def cluster(folder: Path, workers: int) -> Iterator[tuple[Path, list[Running]]]:
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


def dask(kind: str, *options: str) -> Running:
    line = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard", *options]
    return subprocess.Popen(line, env=ENVIRONMENT, stderr=subprocess.DEVNULL)


def worker(file: Path) -> Running:
    return dask("worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny")


def processes(folder: Path, samples: int, rounds: int) -> Iterator[Row]:
    """By turns, and the ratio of each turn."""
    ratios: list[float] = []
    for number in range(rounds):
        seconds: list[float] = []
        for count in (1, 2):
            path, load = folder / f"{number}-{count}.zarr", round(os.getloadavg()[0], 1)
            row = run(command(path, samples, "--processes", str(count)))
            shutil.rmtree(path)
            seconds.append(row["seconds"])
            yield {"case": "processes", "processes": count} | row | {"load": load}
        ratios.append(seconds[0] / seconds[1])
    yield {"case": "processes"} | summary(ratios)


def summary(ratios: list[float]) -> Row:
    return {"ratio": round(float(np.median(ratios)), 2), "ratios": [round(r, 2) for r in ratios]}


def weak(folder: Path, samples: int, rounds: int) -> Iterator[Row]:
    ratios: list[float] = []
    for number in range(rounds):
        seconds: list[float] = []
        for workers in (1, 2):
            n, load = round(samples * workers**0.5), round(os.getloadavg()[0], 1)
            with cluster(folder, workers) as (file, started):
                warm = ["--scheduler", str(file), "--workers", str(workers)]
                small, path = (folder / f"{kind}-{number}-{workers}.zarr" for kind in ("warm", "weak"))
                run(command(small, 4 * TILE, "--tile", str(TILE), *warm))
                before = sum(map(cpu_seconds, started[1:]))
                row = run(command(path, n, *warm))
                spent = sum(map(cpu_seconds, started[1:])) - before
            shutil.rmtree(path)
            seconds.append(row["seconds"])
            del row["peak_gb"]  # of the client
            row["cpu_seconds"] = round(spent, 2)
            yield {"case": "dask", "workers": workers} | row | {"load": load}
        ratios.append(seconds[0] / seconds[1])
    yield {"case": "dask"} | summary(ratios)


def cpu_seconds(process: Running) -> float:
    """What a process has taken so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- kills


def chunks(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("c/*/*") if f.name.isdecimal()}


class Killed:
    """A store that is filled by runs which are killed."""

    def __init__(self, path: Path, line: list[str], whole: Path) -> None:
        self.path, self.line, self.whole = path, line, whole
        self.total = len(chunks(whole))
        self.chance = random.Random(0)
        self.landed: dict[str, int] = {}

    def begun(self, *options: str) -> Running:
        """A run that has written some more chunks."""
        caller = subprocess.Popen([*self.line, *options], env=ENVIRONMENT, stdout=QUIET, stderr=QUIET)
        self.wait(caller)
        return caller

    def wait(self, caller: Running) -> None:
        wanted = self.count() + self.chance.randrange(2, self.total // 25)
        while caller.poll() is None and self.count() < wanted:
            time.sleep(0.01)

    def count(self) -> int:
        return sum(1 for f in self.path.rglob("c/*/*") if f.name.isdecimal())

    def kill(self, name: str, victim: int, caller: Running) -> None:
        """Counted where the run was not at its end."""
        self.landed[name] = self.landed.get(name, 0) + (caller.poll() is None and self.count() < self.total)
        os.kill(victim, signal.SIGKILL)

    def compared(self, by: str) -> Row:
        """After the last run."""
        equal = chunks(self.path) == chunks(self.whole)
        return {"case": "kills", "by": by, "kills": sum(self.landed.values())} | self.landed | {"equal": equal}


def kills(folder: Path, samples: int, count: int) -> Iterator[Row]:
    whole, small = folder / "whole.zarr", ["--tile", str(KILLED)]
    run(command(whole, samples, *small))
    for number in (1, 2):
        path = folder / f"killed-{number}.zarr"
        line = command(path, samples, "--processes", str(number), *small)
        found = Killed(path, line, whole)
        for k in range(count):
            caller = found.begun()
            if number == 2 and k % 2:
                found.kill("other", children(caller)[0], caller)
            else:
                found.kill("process" if number == 1 else "parent", caller.pid, caller)
            caller.wait()
        run(line)
        yield found.compared(f"{number} process{'es' * (number - 1)}")
    yield from dask_kills(folder / "killed-dask.zarr", samples, count, whole)


def dask_kills(path: Path, samples: int, count: int, whole: Path) -> Iterator[Row]:
    folder, found = path.parent, Killed(path, command(path, samples, "--tile", str(KILLED)), whole)
    for k in range(count):
        with cluster(folder, 1) as (file, started):
            under_dask(found, file, started, VICTIMS[k % 3])
    with cluster(folder, 1) as (file, _):
        run([*found.line, "--scheduler", str(file)])
    yield found.compared("dask")


def under_dask(found: Killed, file: Path, started: list[Running], victim: str) -> None:
    """A kill, and that the run goes on with another worker, or ends of itself without its scheduler."""
    caller = found.begun("--scheduler", str(file))
    scheduler, first = started
    found.kill(victim, {"client": caller, "worker": first, "scheduler": scheduler}[victim].pid, caller)
    if victim == "worker":
        started.append(worker(file))
        found.wait(caller)
        caller.kill()
    caller.wait(timeout=120)


def children(process: Running) -> list[int]:
    return list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", choices=("processes", "dask", "kills"), default="processes")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    for name in ("processes", "workers"):
        parser.add_argument(f"--{name}", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--tile", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fill is not None:
        fill(args)
        return
    samples = args.samples or {"processes": 20_000, "dask": 20_000, "kills": 3000}[args.case]
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(args, Path(folder), QUICK[args.case] if args.quick else samples)
        for row in rows:
            print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


def _rows(args: argparse.Namespace, folder: Path, samples: int) -> Iterator[Row]:
    if args.case == "kills":
        return kills(folder, samples, 3 if args.quick else 10)
    by_turns = processes if args.case == "processes" else weak
    return by_turns(folder, samples, 1 if args.quick else args.rounds)


if __name__ == "__main__":
    main()
