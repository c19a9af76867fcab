"""Write how alike patches are: by the direction of their mean key, as `exporter.ops.likeness` defines it."""

import onnx_graphsurgeon as gs

from exporter.lowering.builder import Builder

__all__ = ["MEAN_KEY", "write_directions"]

# The name of the node that computes a patch's mean key.
MEAN_KEY = "mean_key"

# Lower bound of a squared length: a key of zeros has no direction.
SHORTEST = 1e-24


def write_directions(op: Builder, key: gs.Variable, heads: int) -> gs.Variable:
    """Write the mean of the keys over heads, divided by its length: [batch, tokens, head_dim].

    `key` is [batch, heads, tokens, head_dim], or [batch, tokens, channels] as a projection gives it.
    """
    if len(key.shape) == 3:
        by_head = op.Reshape(key, [0, 0, heads, -1], name="heads")
        mean = op.ReduceMean(by_head, [2], keepdims=0, name=MEAN_KEY)
    else:
        mean = op.ReduceMean(key, [1], keepdims=0, name=MEAN_KEY)
    squared = op.ReduceSum(op.Mul(mean, mean), [2], keepdims=1)
    return op.Div(mean, op.Sqrt(op.Max(squared, SHORTEST)), name="directions")
