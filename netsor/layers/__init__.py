"""Layers: macros over the DSL, the vector first, then width and name.

Each is a few lines that a program could write itself; nothing downstream knows a layer. A residual connection is `+`.
`array` stands for further arguments of `Program.matrix`: multiplier, axes, trainable, fan_in. `trainable` holds for all
arrays of a layer, the others for its matrices.
"""

from netsor.layers.cells import gru_cell, lstm_cell
from netsor.layers.concat import Concat, concat
from netsor.layers.convolution import avg_pool, conv, conv_transposed, conv_unshared, global_avg_pool, max_pool
from netsor.layers.linear import dense, positional_embedding, token_embedding
from netsor.layers.mixing import attention, graph_conv
from netsor.layers.normalisation import batch_norm, dropout, layer_norm

__all__ = [
    "Concat", "attention", "avg_pool", "batch_norm", "concat", "conv", "conv_transposed", "conv_unshared", "dense",
    "dropout", "global_avg_pool", "graph_conv", "gru_cell", "layer_norm", "lstm_cell", "max_pool",
    "positional_embedding", "token_embedding",
]  # fmt: skip
