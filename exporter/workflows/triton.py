"""A Triton model repository out of an export folder: the models as they are, and a config.pbtxt for each.

Written by the backends' documentation. No Triton server has loaded one yet: docs/verification.md keeps track.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.artefact import Artefact
from exporter.errors import ArtefactError
from exporter.files import written_beside
from exporter.records import ModelSpec, to_json
from exporter.runtimes.tensorrt.manifest import ENGINES, EngineManifest, engine_path, read_manifest
from exporter.settings import Natural, Positive, Settings, option
from exporter.targets import Target
from exporter.tensor_names import IMAGES
from exporter.vocabulary import InputKind, OutputKind
from exporter.workflows.export_folder import read_folder

__all__ = ["ServeSettings", "config_text", "load_command", "write_repository"]

# Triton's backend, the file that it takes, and where it runs. All but the engines read ONNX.
BACKENDS = {
    "onnxruntime": ("model.onnx", "KIND_AUTO"),
    "openvino": ("model.onnx", "KIND_CPU"),
    "tensorrt": ("model.plan", "KIND_GPU"),
}
TAKES = {
    InputKind.FLOAT32: "# float32: normalised.",
    InputKind.UINT8: "# uint8: pixels after resizing and cropping.",
}
TYPES = {InputKind.FLOAT32: "TYPE_FP32", InputKind.UINT8: "TYPE_UINT8"}


@dataclass(frozen=True, kw_only=True)
class ServeSettings(Settings):
    """How Triton should run the models."""

    backend: str | None = option(
        None,
        "What runs them; by default what they were made for. tensorrt takes the engines that `build` left.",
        BACKENDS,
    )
    max_batch: Positive = option(
        32, "Images that Triton may join in a run; an engine's largest batch at most."
    )
    instances: Positive = option(1, "Copies of each model.")
    queue_delay_us: Natural = option(500, "Microseconds that a request may wait for others.")


def write_repository(folder: Path, out: Path, settings: ServeSettings) -> tuple[Path, ...]:
    """Write `OUT/<model>/config.pbtxt` and `OUT/<model>/1/…` for the dense and the pruned model.

    Args:
        folder: What `compile` left, and for TensorRT what `build` added.
        out: The repository.
        settings: Backend, batching, instances.

    Raises:
        ArtefactError: The folder is not the one that was sent, was made for another runtime than the backend's, or
            has no engine that takes any batch.
        OutputError: The place cannot be written.
    """
    found = read_folder(folder)
    artefact = found.models.pruned.artefact
    backend = _backend(folder, found.target, settings)
    places = []
    for onnx in (found.models.dense.path, found.models.pruned.path):
        place, file = out / onnx.stem.replace(".", "_"), BACKENDS[backend][0]
        source, manifest = onnx, None
        if backend == "tensorrt":
            source = engine_path(folder / ENGINES, onnx)
            manifest = read_manifest(source)
            _check_engine(source, manifest)
        with written_beside(place / "1" / file) as partial:
            shutil.copyfile(source, partial)
        with written_beside(place / "config.pbtxt") as partial:
            text = config_text(place.name, artefact, settings, backend=backend, manifest=manifest)
            partial.write_text(text, encoding="utf-8")
        places.append(place)
    return tuple(places)


def _backend(folder: Path, target: Target, settings: ServeSettings) -> str:
    """The target's runtime, or ONNX Runtime where that is asked for: a file of any target is standard ONNX."""
    backend = settings.backend or target.runtime
    if backend not in (target.runtime, "onnxruntime"):
        hint = f"--backend {target.runtime}, or compile with --target for {backend}"
        raise ArtefactError(str(folder), f"models for {target.name}", f"models for {backend}", hint)
    return backend


def _check_engine(engine: Path, manifest: EngineManifest) -> None:
    if not manifest.any_batch:
        got = "an engine of some batch sizes"
        raise ArtefactError(str(engine), got, "one of any", "star-export build --any-batch")
    # Triton's backend loads plugins in its own way, and ours has not been tried with it.
    if manifest.plugin_sha256:
        raise ArtefactError(str(engine), "an engine with a plugin", "one without", "take the padded layout")


def config_text(
    name: str,
    artefact: Artefact,
    settings: ServeSettings,
    *,
    backend: str,
    manifest: EngineManifest | None = None,
) -> str:
    """One config.pbtxt. An engine runs the batches it was built for, and those are what Triton prefers."""
    file, kind = BACKENDS[backend]
    spec, input_kind = artefact.spec, artefact.input_kind
    batches: Sequence[int] = manifest.batches if manifest else ()
    largest = min(settings.max_batch, max(batches)) if batches else settings.max_batch
    preferred = [batch for batch in batches if 1 < batch <= largest] or [largest]
    dims = ", ".join(map(str, spec.preprocessing.input_size))
    # Each profile of an engine serves a range of batches; without their names Triton would load the first alone.
    profiles = "".join(f', "{index}"' for index in range(len(batches)))[2:]
    lines = [
        f"# What the model takes: {to_json(spec.preprocessing)}",
        TAKES[input_kind],
        f'name: "{name}"',
        f'backend: "{backend}"',
        f'default_model_filename: "{file}"',
        *(['platform: "tensorrt_plan"'] if manifest else []),
        f"max_batch_size: {largest}",
        f'input [ {{ name: "{IMAGES}" data_type: {TYPES[input_kind]} dims: [ {dims} ] }} ]',
        *_outputs(spec),
        f"instance_group [ {{ kind: {kind} count: {settings.instances}"
        + (f" profile: [ {profiles} ]" if profiles else "")
        + " } ]",
        f"dynamic_batching {{ preferred_batch_size: [ {', '.join(map(str, preferred))} ] "
        f"max_queue_delay_microseconds: {settings.queue_delay_us} }}",
    ]
    return "\n".join(lines) + "\n"


def _outputs(spec: ModelSpec) -> list[str]:
    """Of tokens the number follows the image; a model that counts its tokens says so in a tensor more."""
    lines = []
    for output in spec.outputs:
        dims = f"-1, {output.channels}" if output.kind == OutputKind.TOKENS else f"{output.channels}"
        lines.append(f'output [ {{ name: "{output.name}" data_type: TYPE_FP32 dims: [ {dims} ] }} ]')
    return lines


def load_command(out: Path) -> str:
    """How to start Triton on the repository."""
    return f"tritonserver --model-repository={out}"
