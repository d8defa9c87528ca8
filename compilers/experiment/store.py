"""Kernels of finished runs in a file of JSON lines, so that an interrupted simulation goes on where it stopped.

A line holds one width and seed of one simulation; simulations are told apart by a hash of the program's listing, the
inputs and the options, so several can share a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

Kernels = Mapping[str, torch.Tensor]


class Store:
    """The runs of one simulation in a file; `None` as path keeps nothing."""

    def __init__(self, path: str | Path | None, listing: str, inputs: Iterable[torch.Tensor], options: str) -> None:
        self.path = None if path is None else Path(path)
        digest = hashlib.sha256(f"{listing}\n{options}".encode())
        for tensor in inputs:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        self.key = digest.hexdigest()[:16]
        self.known: dict[tuple[int, int], Kernels] = {}
        self._broken = False  # does the file end in half a line?
        if self.path is not None and self.path.exists():
            text = self.path.read_text(encoding="utf-8")
            self._broken = bool(text) and not text.endswith("\n")
            for line in text.splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            record: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            return  # the last line of an interrupted run
        if record.get("simulation") == self.key:
            self.known[record["width"], record["seed"]] = {
                name: torch.tensor(value, dtype=torch.float64) for name, value in record["kernels"].items()
            }

    def text(self) -> str:
        """What an interruption leaves."""
        if self.path is None:
            return "nothing is kept: store='runs.jsonl' of ns.simulate keeps the networks that are done"
        done = "1 network is" if len(self.known) == 1 else f"{len(self.known):,} networks are"
        return f"{done} in {self.path}; the same call goes on with the others"

    def get(self, width: int, seed: int) -> Kernels | None:
        return self.known.get((width, seed))

    def add(self, width: int, seed: int, kernels: Kernels) -> None:
        """Append one run."""
        if self.path is None:
            return
        self.known[width, seed] = kernels
        values = {name: value.to(torch.float64).tolist() for name, value in kernels.items()}
        record = {"simulation": self.key, "width": width, "seed": seed, "kernels": values}
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._broken + json.dumps(record) + "\n")
        self._broken = False
