"""The models of a benchmark as their files describe them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.errors import ArtefactError
from exporter.evaluation.survivors import patches_left
from exporter.records import ModelSpec, Pair, Schedule, from_json
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.macs import MacCount, mean_macs, pruned_macs
from exporter.tensor_names import KEY_PREFIX, count_name

__all__ = ["Subject", "delivered_pair", "read_pair"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Subject:
    """An ONNX file of ours, and what its metadata says."""

    path: Path
    spec: ModelSpec
    schedule: Schedule
    weights_sha256: str

    def macs(self, reference: Mapping[str, Array]) -> MacCount:
        """Multiply-adds of one image; under a-STAR, useful ones in the mean over a reference's images.

        Raises:
            ArtefactError: The reference does not say what a-STAR's layers keep.
        """
        if not self.schedule.adaptive:
            return pruned_macs(self.spec, self.schedule.keep)
        if not reference.keys() >= {count_name(layer) for layer in self.schedule.pruning_layers}:
            raise ArtefactError("the reference", "no survivors of a-STAR", f"those of {self.path.name}")
        return mean_macs(self.spec, patches_left(reference, self.spec.depth, self.spec.num_patches))


def read_pair(files: Pair[Path]) -> Pair[Subject]:
    """A dense and a pruned file of the same model.

    Raises:
        ArtefactError: A file is none of ours, is in the other's place, or is of another model.
    """
    dense, pruned = _read(files.dense), _read(files.pruned)
    if dense.schedule.pruning_layers:
        raise ArtefactError(str(dense.path), "a pruned model", "the dense one")
    if not pruned.schedule.pruning_layers:
        raise ArtefactError(str(pruned.path), "a model that drops no patch", "a pruned one")
    if (dense.spec, dense.weights_sha256) != (pruned.spec, pruned.weights_sha256):
        got = f"{dense.spec.name} with other weights or shapes"
        raise ArtefactError(str(dense.path), got, f"the dense model of {pruned.path.name}")
    return Pair(dense, pruned)


def delivered_pair(files: Pair[Path], spec: ModelSpec, schedule: Schedule) -> Pair[Subject]:
    """The same from what lies beside the files in their folder, where no runtime reads ONNX files."""
    layers = len(schedule.keep)
    dense = replace(
        schedule, method="star", rates=(1.0,) * layers, keep=(schedule.num_patches,) * layers, rho=None
    )
    return Pair(Subject(files.dense, spec, dense, ""), Subject(files.pruned, spec, schedule, ""))


def _read(path: Path) -> Subject:
    """Through the runtime, so that a machine without onnx can, too."""
    with OnnxRuntimeRunner(path) as runner:
        metadata = runner.metadata()
    keys = [KEY_PREFIX + key for key in ("model", "schedule", "weights_sha256")]
    if not metadata.keys() >= set(keys):
        raise ArtefactError(str(path), "a model without our metadata", "an ONNX model that star-export made")
    spec, schedule, weights_sha256 = (metadata[key] for key in keys)
    return Subject(
        path,
        from_json(ModelSpec, spec, source=str(path)),
        from_json(Schedule, schedule, source=str(path)),
        weights_sha256,
    )
