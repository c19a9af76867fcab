"""Graphs that score patches by the class token's attention and keep some, in the words of torch's export."""

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from tests.lowering.graphs import artefact, graph_of

__all__ = ["ALPHA", "CHANNELS", "HEADS", "KEPT", "OF", "PATCHES", "PREFIX", "by_mass", "top_k"]

OF: Artefact = artefact(1)
HEADS, PREFIX = OF.spec.num_heads, OF.spec.num_prefix_tokens
PATCHES, KEPT, CHANNELS = 12, 5, 4
ALPHA = 0.5

BY_HEAD = f"float[b, {HEADS}, {PREFIX + PATCHES}, {CHANNELS}]"
ATTENTION = f"({BY_HEAD} query, {BY_HEAD} key"
SCORE = (
    " row = star.ClassRow <scale = 0.5, num_class_tokens = 1> (query, key)"
    " {mask} softmax = Softmax <axis = -1> ({row}) mean = ReduceMean <keepdims = 0> (softmax, one)"
    " cut = Slice (mean, prefix, end, one) floored = Clip (cut, floor) log = Log (floored)"
    " weighed = Mul (log, alpha) index = Unsqueeze (positions, last) inter = GatherND (table, index)"
    " score = Add (weighed, inter)"
)
CONSTANTS: dict[str, np.ndarray] = {
    "one": np.array([1]),
    "prefix": np.array([PREFIX]),
    "end": np.array([2**62]),
    "last": np.array([-1]),
    "floor": np.array(1e-30, np.float32),
    "alpha": np.array(ALPHA, np.float32),
    "hidden": np.array(-np.inf, np.float32),
}


def top_k(table: np.ndarray) -> gs.Graph:
    """STAR: the survivors, and where they stand; (1 − alpha)·log of the inter-layer scores is the table."""
    return graph_of(
        f"{ATTENTION}, int64[b, {PATCHES}] positions) => (int64[b, {KEPT}] keep, int64[b, {KEPT}] standing) {{"
        f"{SCORE.format(mask='', row='row')} keep = star.KeepTopK <k = {KEPT}> (score)"
        " standing_ = GatherElements <axis = 1> (positions, keep) standing = Identity (standing_) }",
        {**CONSTANTS, "table": table},
    )


def by_mass(table: np.ndarray, mass: float) -> gs.Graph:
    """a-STAR: the same, and how many; `out` marks tokens that are not the image's own, of `count` patches."""
    mask = "masked = Where (out, hidden, row)"
    return graph_of(
        f"{ATTENTION}, int64[b, {PATCHES}] positions, bool[b, 1, {PREFIX + PATCHES}] out, int64[b] count)"
        " => (int64[b, m] keep, int64[b] kept, int64[b, m] standing) {"
        f"{SCORE.format(mask=mask, row='masked')} likely = Exp (score)"
        f" keep, kept, width = star.CdfRetain <mass = {mass}> (likely, count)"
        " standing_ = GatherElements <axis = 1> (positions, keep) standing = Identity (standing_) }",
        {**CONSTANTS, "table": table},
    )
