"""What a block of pairs is told, and what it tells: memory that tensors leave, near pairs, what is asked for.

Generated code hands it on; nothing is found again from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks.buffers import Buffers
from netsor.compilers.expectation.blocks.fused import NEAR


@dataclass
class Work:
    """A block of pairs at work.

    `own`: its rows are its columns, one input by one. `watching`: pairs too near |ρ| = 1 for the dtype are not taken
    again entry by entry but marked in `near` `[n, m]`. `tangents`: expectations of derivatives are asked for after
    those of the functions. With a list of `extremes` the block is a first pass, in which no value decides what is done:
    the least and largest r of each law stand there, and where one is near ±1 the block has to be computed again.
    """

    own: bool = False
    watching: bool = False
    tangents: bool = False
    buffers: Buffers | None = None
    near: Tensor | None = field(default=None, repr=False)
    extremes: list[Tensor] | None = field(default=None, repr=False)

    @property
    def has_near(self) -> bool:
        """Has a first pass met a pair too near |ρ| = 1 for it?"""
        if not self.extremes:
            return False
        found = torch.stack(self.extremes).abs().amax()
        return not bool(found <= 1 - NEAR[found.dtype])

    def mark(self, mask: Tensor) -> None:
        """Pairs of inputs in which some entry of the mask is set."""
        mask = mask.flatten(2).any(2) if mask.dim() > 2 else mask
        self.near = mask if self.near is None else self.near | mask

    def empty(self, shape: torch.Size, like: Tensor) -> Tensor:
        """As `like.new_empty(shape)`, in memory that another tensor of the block has left where there is some."""
        if self.buffers is None:
            return like.new_empty(shape)
        return self.buffers.empty(shape, like.dtype, like.device)

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        """x·y, a tensor of its own."""
        if not isinstance(x, Tensor) or not covers(x, y):
            return x * y
        return torch.mul(x, y, out=self.empty(x.shape, x))


def covers(x: Tensor, y: Tensor) -> bool:
    """Does y broadcast to the shape of x?"""
    extra = x.dim() - y.dim()
    return extra >= 0 and all(n in (1, m) for n, m in zip(y.shape, x.shape[extra:], strict=True))


def untracked(*tensors: Tensor) -> bool:
    """Does no gradient flow through these?"""
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
