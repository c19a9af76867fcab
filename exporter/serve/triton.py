"""Write a Triton model repository from an export folder: the models unchanged, and a config.pbtxt for each.

It follows the documentation of the backends. No Triton server has loaded one yet: see docs/verification.md.
"""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from exporter.core.base.artefact import Artefact
from exporter.core.base.canonical_json import to_json
from exporter.core.base.errors import ArtefactError
from exporter.core.base.files import folder_beside
from exporter.core.base.large_onnx import files_of
from exporter.core.base.outputs import output_names
from exporter.core.base.targets import (
    ONNXRUNTIME_CPU,
    OPENVINO_CPU,
    RUNTIMES,
    Target,
)
from exporter.core.base.tensor_names import (
    IMAGES,
    token_count_name,
    token_positions_name,
)
from exporter.core.base.vocabulary import InputKind, OutputKind
from exporter.engines.manifest import (
    ENGINES,
    EngineManifest,
    engine_path,
    read_manifest,
)
from exporter.serve.loaders import BACKENDS, Served, ServeSettings, read_for

TAKES = {
    InputKind.FLOAT32: "# float32: normalised.",
    InputKind.UINT8: "# uint8: pixels after resizing and cropping.",
}
# The names of the classes, by which a client may ask for the best few.
LABELS = "labels.txt"
TYPES = {InputKind.FLOAT32: "TYPE_FP32", InputKind.UINT8: "TYPE_UINT8"}

logger = logging.getLogger(__name__)


def write_repository(folder: Path, out: Path, settings: ServeSettings) -> Served:
    """Write `OUT/<model>/config.pbtxt` and `OUT/<model>/1/…` for the dense and the pruned model.

    For TensorRT, the folder has the engines of `build`.
    """
    models = read_for(folder, out)
    artefact, target = models.pruned, models.pruned.target
    backend = _backend(folder, target, settings)
    _warn(target, backend, settings)
    names, manifests = [], []
    with folder_beside(out) as aside:
        for onnx in (models.dense.path, models.pruned.path):
            place, file = aside / onnx.stem.replace(".", "_"), BACKENDS[backend][0]
            source, manifest = onnx, None
            if RUNTIMES[backend].engines:
                source = engine_path(folder / ENGINES, onnx)
                manifest = read_manifest(source)
                _check_engine(source, manifest)
                manifests.append(manifest)
            (place / "1").mkdir(parents=True)
            shutil.copyfile(source, place / "1" / file)
            # under the name by which the model knows them
            for data in files_of(source)[1:]:
                shutil.copyfile(data, place / "1" / data.name)
            text = config_text(
                place.name, artefact, settings, backend=backend, manifest=manifest
            )
            (place / "config.pbtxt").write_text(text, encoding="utf-8")
            if artefact.spec.class_names:
                (place / LABELS).write_text(labels_text(artefact), encoding="utf-8")
            names.append(place.name)
    return Served(tuple(out / name for name in names), _command(out, manifests))


def _warn(target: Target, backend: str, settings: ServeSettings) -> None:
    """Say where answers may differ from those that were checked."""
    if target.dynamic and settings.max_batch > 1:
        logger.warning(
            "%s: an answer depends, within rounding, on the images that Triton puts beside it; accuracy is that "
            "of images one by one (--max-batch 1 serves them so)",
            target.name,
        )
    if backend == OPENVINO_CPU.name:
        # Of precisions, it reads HINT_BF16 alone, with YES.
        logger.warning(
            "%s: on a CPU with bf16, Triton's OpenVINO computes in bf16, which no config.pbtxt changes "
            "(--backend onnxruntime computes as the file says)",
            target.name,
        )


def labels_text(artefact: Artefact) -> str:
    """Return the names of the classes, a line each."""
    return "".join(f"{' '.join(name.split())}\n" for name in artefact.spec.class_names)


def _command(out: Path, manifests: Sequence[EngineManifest]) -> tuple[str, ...]:
    """Return the command that starts Triton: it loads engines with code inside only where it is told to."""
    words = ("tritonserver", f"--model-repository={out}")
    if not any(manifest.settings.version_compatible for manifest in manifests):
        return words
    return (*words, "--backend-config=tensorrt,version-compatible=true")


def _backend(folder: Path, target: Target, settings: ServeSettings) -> str:
    """Return the requested backend: the target's runtime, or ONNX Runtime, which runs the files of all targets."""
    native = target.runtime.name
    backend = settings.backend or native
    if backend not in (native, ONNXRUNTIME_CPU.name):
        hint = f"--backend {native}, or compile with --target for {backend}"
        raise ArtefactError(
            folder, f"models for {target.name}", f"models for {backend}", hint
        )
    return backend


def _check_engine(engine: Path, manifest: EngineManifest) -> None:
    if not manifest.settings.any_batch:
        got = "an engine for certain batch sizes only"
        raise ArtefactError(
            engine, got, "one for any batch", "star-export build --any-batch"
        )
    # Triton's backend loads plugins differently; ours have not been tested with it.
    if manifest.plugin_sha256:
        hint = "use the padded layout"
        raise ArtefactError(engine, "an engine with a plugin", "one without", hint)


def config_text(
    name: str,
    artefact: Artefact,
    settings: ServeSettings,
    *,
    backend: str,
    manifest: EngineManifest | None = None,
) -> str:
    """Return the text of a config.pbtxt. For an engine, the preferred batch sizes are those it was built for."""
    file, kind = BACKENDS[backend]
    spec, input_kind = artefact.spec, artefact.input_kind
    batches: Sequence[int] = manifest.settings.batches if manifest else ()
    largest = min(settings.max_batch, max(batches)) if batches else settings.max_batch
    preferred = [batch for batch in batches if 1 < batch <= largest] or [largest]
    dims = ", ".join(map(str, spec.preprocessing.input_size))
    # Each profile of an engine serves a range of batches; unless all are named, Triton loads only the first.
    profiles = "".join(f', "{index}"' for index in range(len(batches)))[2:]
    lines = [
        f"# Preprocessing: {to_json(spec.preprocessing)}",
        TAKES[input_kind],
        f"name: {to_json(name)}",
        f'backend: "{backend}"',
        f'default_model_filename: "{file}"',
        *(['platform: "tensorrt_plan"'] if manifest else []),
        f"max_batch_size: {largest}",
        f'input [ {{ name: "{IMAGES}" data_type: {TYPES[input_kind]} dims: [ {dims} ] }} ]',
        *_outputs(artefact),
        f"instance_group [ {{ kind: {kind} count: {settings.instances}"
        + (f" profile: [ {profiles} ]" if profiles else "")
        + " } ]",
        f"dynamic_batching {{ preferred_batch_size: [ {', '.join(map(str, preferred))} ] "
        f"max_queue_delay_microseconds: {settings.queue_delay_us} }}",
        # One launch a run instead of one a kernel, as in the measurements of `bench`.
        *(["optimization { cuda { graphs: true } }"] if manifest else []),
    ]
    return "\n".join(lines) + "\n"


def _outputs(artefact: Artefact) -> list[str]:
    """Return the output entries; the number of tokens in a token output is dynamic."""
    lines, tensors = [], output_names(artefact.spec, artefact.schedule)
    for output in artefact.spec.outputs:
        is_tokens = output.kind == OutputKind.TOKENS
        rows = {
            OutputKind.TOKENS: "-1, ",
            OutputKind.GRID: f"{artefact.spec.num_patches}, ",
        }.get(output.kind, "")
        dims = f"[ {rows}{output.channels} ]"
        if output == artefact.spec.head and artefact.spec.class_names:
            dims = f'{dims} label_filename: "{LABELS}"'
        entries = {output.name: ("FP32", dims)}
        if is_tokens:
            entries[token_positions_name(output.name)] = ("INT64", "[ -1 ]")
            # Triton takes no empty shape.
            entries[token_count_name(output.name)] = (
                "INT64",
                "[ 1 ] reshape { shape: [ ] }",
            )
        lines += [
            f'output [ {{ name: "{tensor}" data_type: TYPE_{kind} dims: {sizes} }} ]'
            for tensor, (kind, sizes) in entries.items()
            if tensor in tensors
        ]
    return lines
