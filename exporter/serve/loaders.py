"""Which program should load a model, and how; and what was written for it."""

from dataclasses import dataclass
from pathlib import Path

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import OutputError
from exporter.core.base.records import Pair
from exporter.core.base.settings import (
    Instances,
    Microseconds,
    ServedBatch,
    Settings,
    changes_of,
    option,
)
from exporter.serve.export_folder import read_models

TRITON, HUGGINGFACE = LOADERS = ("triton", "huggingface")
# Triton's backend → (the file that it reads, the kind of device).
BACKENDS = {
    "onnxruntime": ("model.onnx", "KIND_AUTO"),
    "openvino": ("model.onnx", "KIND_CPU"),
    "tensorrt": ("model.plan", "KIND_GPU"),
}


@dataclass(frozen=True, kw_only=True)
class ServeSettings(Settings):
    """The program that loads the models, and how Triton runs them."""

    loader: str = option(
        TRITON,
        "What loads the folder: triton, or huggingface (transformers.js, optimum).",
        LOADERS,
    )
    backend: str | None = option(
        None,
        "Triton backend; by default the target's runtime. tensorrt uses the engines that `build` wrote.",
        BACKENDS,
    )
    max_batch: ServedBatch = option(
        32,
        "Largest batch that Triton may form; for an engine, at most the largest batch it was built for.",
    )
    instances: Instances = option(1, "Instances of each model in Triton.")
    queue_delay_us: Microseconds = option(
        500, "Longest time that a request waits for a batch in Triton, in microseconds."
    )

    def check(self) -> None:
        """Refuse what only Triton is told where another program loads the folder."""
        for name in changes_of(self):
            holds = name == "loader" or self.loader == TRITON
            self.require(
                name, holds, f"none: it is Triton's, not of --loader {self.loader}"
            )


@dataclass(frozen=True)
class Served:
    """What a program loads, folders or files, and the command that starts the program, if it is told the place."""

    models: tuple[Path, ...]
    command: tuple[str, ...] = ()


def read_for(folder: Path, out: Path) -> Pair[Artefact]:
    """Read the models of an export folder of which another one is written."""
    if out.resolve().is_relative_to(folder.resolve()):
        raise OutputError(out, "a place in the export folder", "another folder")
    return read_models(folder)
