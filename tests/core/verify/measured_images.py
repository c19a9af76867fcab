"""Numbers measured of images, made up for tests."""

import numpy as np

from exporter.core.verify.decisions import LayerResult
from exporter.core.verify.differences import Differences, OutputDifferences


def layer_result(
    flipped: list[bool], margin: list[float], malformed: list[bool] | None = None
) -> LayerResult:
    marks, overlap = np.array(flipped), np.where(flipped, 0.5, 1.0)
    bad = np.array(malformed or [False] * len(flipped))
    sizes = np.full(len(flipped), 16), np.full(len(flipped), 8)
    return LayerResult(3, *sizes, overlap, marks, marks, np.array(margin), bad)


def measured(
    diff: list[float],
    layers: list[LayerResult] | None = None,
    finite: list[bool] | None = None,
) -> Differences:
    zeros, ones = np.zeros(len(diff)), np.ones(len(diff))
    live = np.array(finite or [True] * len(diff))
    agree = {"top1": ones, "top5": ones}
    logits = OutputDifferences(
        live,
        np.array(diff)[:, None],
        zeros[:, None],
        zeros[:, None] + 0.01,
        ones,
        dict(agree),
        dict(agree),
    )
    return Differences({"logits": logits}, layers or [], [])
