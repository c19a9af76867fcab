"""Find the range of each activation over images: that in which rounding and clipping lose least."""

import copy
import importlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from exporter.errors import MissingDependencyError
from exporter.lowering.number_formats import NumberFormat, Range
from exporter.tensor_names import IMAGES

__all__ = ["Tails", "activation_ranges", "activations"]

# Images per run, and the most values of all tensors of a run together: 0.5 GB.
_BATCH, _MOST_VALUES = 8, 2**27
# At most one value in this many is clipped at each end.
_ONE_OF = 10_000
# Numbers of clipped values that are compared.
_CANDIDATES = 50

Array = np.ndarray[Any, Any]


def activation_ranges(
    model: onnx.ModelProto, formats: Mapping[str, NumberFormat], images: Array
) -> dict[str, Range]:
    """Return the range of each float32 tensor in which it loses least in its format.

    Args:
        model: In fp32, for ONNX Runtime.
        formats: By names of tensors of the model, what each will be rounded to.
        images: [n, 3, H, W] as the model takes them.

    Raises:
        MissingDependencyError: ONNX Runtime is not installed.
    """
    tails = {name: Tails(form) for name, form in formats.items()}
    for values, runs in activations(model, formats, images):
        for name, each in values.items():
            tails[name].add(each, runs=runs)
    return {name: each.fitted() for name, each in tails.items()}


def activations(
    model: onnx.ModelProto, tensors: Collection[str], images: Array
) -> Iterator[tuple[dict[str, Array], int]]:
    """Yield the values of each tensor, run by run of a few images as memory allows, and the number of runs."""
    session = _session(model, tensors)

    def run(batch: Array) -> dict[str, Array]:
        return dict(zip(tensors, session.run(list(tensors), {IMAGES: batch}), strict=True))

    of_one = sum(each.size for each in run(images[:1]).values())
    size = min(max(_MOST_VALUES // max(of_one, 1), 1), _BATCH)
    batches = np.array_split(images, -(-len(images) // size))
    yield from ((run(batch), len(batches)) for batch in batches)


@dataclass
class Tails:
    """The lowest and the highest values of a tensor, of all runs so far: these alone may be clipped.

    A format of floats clips nothing, since large values take no precision from small ones.
    """

    form: NumberFormat
    size: int = 0
    lowest: list[Array] = field(default_factory=list)
    highest: list[Array] = field(default_factory=list)

    def add(self, values: Array, *, runs: int = 1) -> None:
        """Take over the tails of one of `runs` runs, of about this size each."""
        values = values.ravel()
        self.size += values.size
        last = min(self._clipped(values.size * runs), values.size - 1)
        self.lowest.append(np.partition(values, last)[: last + 1])
        self.highest.append(np.partition(values, values.size - 1 - last)[-1 - last :])

    def fitted(self) -> Range:
        """Return the range of least squared error: values inside lose step² / 12 each, clipped ones what is cut.

        Large values stay where clipping them costs more than a finer step gains for the others.
        """
        lowest = np.sort(np.concatenate(self.lowest)).astype(np.float64)
        highest = np.sort(np.concatenate(self.highest)).astype(np.float64)
        most = min(self._clipped(self.size), len(lowest) - 1)
        counts = {0, *np.geomspace(1, most, _CANDIDATES).round().astype(int).tolist()} if most else {0}

        def error(values: Range) -> float:
            low, high = self.form.covered(values)
            below, above = np.maximum(low - lowest, 0), np.maximum(highest - high, 0)
            rounding = self.form.scale_of(values)[0] ** 2 / 12
            return float(self.size * rounding + below @ below + above @ above)

        ranges = [(float(lowest[count]), float(highest[-1 - count])) for count in sorted(counts)]
        return min(ranges, key=error)

    def _clipped(self, size: int) -> int:
        """Return how many of so many values may be clipped at each end."""
        return size // _ONE_OF if self.form.has_steps else 0


def _session(model: onnx.ModelProto, tensors: Collection[str]) -> Any:
    """Return a session of the model that also gives these tensors."""
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingDependencyError("onnxruntime", "onnxruntime") from None
    shown = copy.deepcopy(model)
    there = {output.name for output in shown.graph.output}
    shown.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in tensors
        if name not in there
    )
    return onnxruntime.InferenceSession(shown.SerializeToString(), providers=["CPUExecutionProvider"])
