"""Find the engines that `build` wrote for the models of a benchmark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from exporter.runtimes.tensorrt.manifest import (
    ENGINES,
    Built,
    EngineManifest,
    engine_path,
    profile_for,
    read_manifest,
)

__all__ = ["EngineByBatch", "EngineFile", "Engines", "engine_files"]


@dataclass(frozen=True)
class EngineFile:
    """An engine file, the ONNX file it was built from, and its manifest."""

    onnx: Path
    path: Path
    manifest: EngineManifest


# The engine that runs each batch size: one for all, or one each.
EngineByBatch: TypeAlias = Mapping[int, EngineFile]


@dataclass(frozen=True)
class Engines:
    """The engines of a benchmark. `sliced` is the pruned model with plain slices, None to leave it out."""

    dense: EngineByBatch
    pruned: EngineByBatch
    sliced: EngineByBatch | None = None

    @property
    def built(self) -> Built:
        """The machine that they were built on."""
        return next(iter(self.pruned.values())).manifest.built

    @property
    def folder(self) -> Path:
        """The export folder."""
        return next(iter(self.pruned.values())).onnx.parent

    def at(self, batch: int) -> dict[str, EngineFile]:
        """Return the engines that run a batch size, by role."""
        present = {"dense": self.dense, "pruned": self.pruned, "sliced": self.sliced}
        return {role: engines[batch] for role, engines in present.items() if engines is not None}


def engine_files(onnx: Path, batches: Sequence[int], *, one_profile: bool = False) -> EngineByBatch:
    """Find the engines of an ONNX file.

    Args:
        onnx: The ONNX file.
        batches: The batch sizes to run.
        one_profile: Whether each batch size has an engine of its own.

    Raises:
        ArtefactError: There is no engine.
        UserError: It was not built for one of the batch sizes.
    """
    found = {}
    for batch in batches:
        engine = engine_path(onnx.parent / ENGINES, onnx, batch if one_profile else 0)
        manifest = read_manifest(engine)
        profile_for(manifest, batch, engine.name)
        found[batch] = EngineFile(onnx, engine, manifest)
    return found
