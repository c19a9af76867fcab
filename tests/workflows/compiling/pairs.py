"""A dense and a pruned model in files, lowered once for all tests."""

from pathlib import Path

import onnx

from exporter.artefact import LoweredFile, read_pair
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from tests.lowering.models import dense, lowered

__all__ = ["lowered_pair"]


def lowered_pair(folder: Path, pruned: PrunedViT) -> Pair[LoweredFile]:
    """Both models in a folder; `pruned` is one of `tests.lowering.models`."""
    for name, model in (("dense", dense()), ("pruned", pruned)):
        onnx.save(lowered(model), folder / f"{name}.onnx")
    return read_pair(Pair(folder / "dense.onnx", folder / "pruned.onnx"))
