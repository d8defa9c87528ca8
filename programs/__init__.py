"""Architectures, each a function that returns a `Program` and uses the DSL only."""

from __future__ import annotations

from collections.abc import Callable

from netsor.build.program import Program
from netsor.programs.batchnorm_mlp import batchnorm_mlp
from netsor.programs.cnn import cnn
from netsor.programs.cntk import cntk
from netsor.programs.gcn import gcn
from netsor.programs.gia_counterexample import gia_counterexample
from netsor.programs.gru import gru
from netsor.programs.lstm import lstm
from netsor.programs.maxpool_cnn import maxpool_cnn
from netsor.programs.mlp import mlp
from netsor.programs.resnet import resnet
from netsor.programs.rnn import rnn
from netsor.programs.tied_autoencoder import tied_autoencoder
from netsor.programs.transformer import transformer

BUILTIN: dict[str, Callable[..., Program]] = {
    "mlp": mlp,
    "rnn": rnn,
    "cnn": cnn,
    "cntk": cntk,
    "resnet": resnet,
    "transformer": transformer,
    "batchnorm_mlp": batchnorm_mlp,
    "gru": gru,
    "lstm": lstm,
    "gcn": gcn,
    "maxpool_cnn": maxpool_cnn,
    "tied_autoencoder": tied_autoencoder,
    "gia_counterexample": gia_counterexample,
}

__all__ = [
    "BUILTIN", "batchnorm_mlp", "cnn", "cntk", "gcn", "gia_counterexample", "gru", "lstm", "maxpool_cnn", "mlp",
    "resnet", "rnn", "tied_autoencoder", "transformer",
]  # fmt: skip
