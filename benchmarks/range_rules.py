"""Ranges of activations by other rules than star-export's, to compare with them."""

import contextlib
import importlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

from exporter.lowering import quantize
from exporter.lowering.activation_ranges import activations
from exporter.lowering.number_formats import NumberFormat, Range

__all__ = ["RULES", "ranges_by"]

# The share of the values, in percent, that the percentile rule leaves out at each end.
LEFT_OUT = 0.001
# The histogram of the entropy rule, over both signs, and the levels that it is rounded to.
BINS, LEVELS = 2048, 256

Array = np.ndarray[Any, Any]


@contextmanager
def ranges_by(rule: str) -> Iterator[None]:
    """Let star-export take the ranges of activations by one of RULES while the block runs."""

    def ranges(
        model: onnx.ModelProto, formats: Mapping[str, NumberFormat], images: Array
    ) -> dict[str, Range]:
        return RULES[rule](model, formats, images)

    with patch.object(quantize, "activation_ranges", ranges):
        yield


def by_minmax(model: onnx.ModelProto, tensors: Collection[str], images: Array) -> dict[str, Range]:
    """Return the whole range of each tensor."""
    found: dict[str, list[float]] = {name: [] for name in tensors}
    for values, _ in activations(model, tensors, images):
        for name, each in values.items():
            found[name] += float(each.min()), float(each.max())
    return {name: (min(ends), max(ends)) for name, ends in found.items()}


def by_percentile(model: onnx.ModelProto, tensors: Collection[str], images: Array) -> dict[str, Range]:
    """Return the range of each tensor from the percentile LEFT_OUT to 100 - LEFT_OUT, over all images."""
    return {
        name: (float(low), float(high))
        for name in tensors
        for low, high in [np.percentile(_all_of(model, name, images), [LEFT_OUT, 100 - LEFT_OUT])]
    }


def by_entropy(model: onnx.ModelProto, tensors: Collection[str], images: Array) -> dict[str, Range]:
    """Return the range of each tensor that keeps most of its histogram's entropy, by ONNX Runtime's calibrator."""
    calibrate = importlib.import_module("onnxruntime.quantization.calibrate")
    collector = calibrate.HistogramCollector(
        method="entropy",
        symmetric=False,
        num_bins=BINS,
        num_quantized_bins=LEVELS,
        percentile=None,
        scenario="same",
    )
    with contextlib.redirect_stdout(io.StringIO()):  # its own report
        for values, _ in activations(model, tensors, images):
            collector.collect(values)
        found = collector.compute_collection_result()
    return {name: (float(low), float(high)) for name, (low, high, *_) in found.items()}


def _all_of(model: onnx.ModelProto, name: str, images: Array) -> Array:
    """Return all values of one tensor: those of all tensors at once may not fit into memory."""
    return np.concatenate([values[name].ravel() for values, _ in activations(model, [name], images)])


RULES: dict[str, Callable[[onnx.ModelProto, Collection[str], Array], dict[str, Range]]] = {
    "minmax": by_minmax,
    "percentile": by_percentile,
    "entropy": by_entropy,
}
