"""Build the TensorRT engines of an export folder, and write a manifest and an audit for each."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.artefact import Artefact
from exporter.errors import ArtefactError, UserError
from exporter.files import sha256_of
from exporter.records import ModelSpec, Pair
from exporter.runtimes.tensorrt.builder import Engine, build_engine, save_engine
from exporter.runtimes.tensorrt.layer_info import Audit, audit, read_layers
from exporter.runtimes.tensorrt.manifest import ENGINES, Built, EngineManifest, engine_path
from exporter.runtimes.tensorrt.plugin_library import calls_plugin, checked_library
from exporter.runtimes.tensorrt.runner import this_machine
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import import_tensorrt, version_numbers
from exporter.runtimes.tensorrt.trtexec import build_command
from exporter.targets import TENSORRT, Target
from exporter.tensor_names import SLICED, VARIANTS, variant_path
from exporter.workflows.folders.export_folder import SCHEDULE, read_folder
from exporter.workflows.progress import Silent, Stages

__all__ = ["BuiltEngine", "build_folder", "check_gpu", "check_version"]

# Before, the parser turns a cumulative sum into a loop of as many steps as there are patches.
LEAST_CUMULATIVE = (10, 8)


@dataclass(frozen=True)
class BuiltEngine:
    """One engine of a folder: the audit of each profile, and for each batch an equivalent trtexec command."""

    file: str
    manifest: EngineManifest
    audits: tuple[Audit, ...]
    trtexec: tuple[tuple[str, ...], ...]


def build_folder(
    folder: Path, settings: BuildSettings, stages: Stages | None = None
) -> tuple[BuiltEngine, ...]:
    """Build engines of the dense and the pruned model, and of the instrumented variants for `check`.

    Args:
        folder: An export folder that `compile` wrote.
        settings: Batches, memory, compatibility, plugin.
        stages: Shows progress.

    Raises:
        ArtefactError: A file does not match its checksum, the target is another runtime, or a model is refused.
        UserError: TensorRT or a GPU is missing, or the version lacks a requested feature.
    """
    stages = stages or Silent()
    found = read_folder(folder)
    _check_runtime(folder, found.target)
    trt = import_tensorrt()
    check_version(found.target, trt.__version__)
    here = this_machine(trt.__version__)
    check_gpu(found.target, here)
    dense, pruned = found.models.dense.path, found.models.pruned.path
    artefact = found.models.pruned.artefact
    _check_retention(pruned, artefact, settings, trt.__version__)
    cache = settings.timing_cache or folder / ENGINES / f"timing.{here.tensorrt}.sm{here.sm}.cache"
    variants = settings.variants and artefact.prunes
    built = []
    for onnx, batch, own in _jobs(Pair(dense, pruned), settings, variants):
        path = engine_path(folder / ENGINES, onnx, batch)
        with stages.stage(f"engine, {path.stem}"):
            engine = build_engine(trt, onnx, own, cache, artefact.schedule.widths)
            built.append(_save(engine, path, onnx, own, here, artefact.spec))
    return tuple(built)


def _jobs(
    models: Pair[Path], settings: BuildSettings, variants: bool
) -> Iterator[tuple[Path, int, BuildSettings]]:
    """Yield each engine's model, its batch size if it has one alone, else 0, and its settings."""

    def own_settings(onnx: Path) -> BuildSettings:
        return settings if calls_plugin(onnx) else settings.without_plugin

    both = [(onnx, own_settings(onnx)) for onnx in (models.dense, models.pruned)]
    yield from ((onnx, 0, own) for onnx, own in both)
    if variants:
        for onnx in (variant_path(models.pruned, role) for role in VARIANTS):
            yield onnx, 0, own_settings(onnx).for_variants
        sliced = variant_path(models.pruned, SLICED)
        if sliced.is_file():
            yield sliced, 0, own_settings(sliced)
    if settings.one_profile:
        yield from ((onnx, batch, own.for_batch(batch)) for onnx, own in both for batch in settings.batches)


def _check_runtime(folder: Path, target: Target) -> None:
    if target.runtime != TENSORRT.runtime:
        expected, hint = "models for TensorRT", f"star-export compile --target {TENSORRT.name}"
        raise ArtefactError(str(folder), f"models for {target.name}", expected, hint)


def check_version(target: Target, version: str) -> None:
    """Raise UserError for a version before the target's first.

    8.6 reads opset 17 at most and takes precision from flags, not from the graph.
    """
    if version_numbers(version) < target.least_version:
        expected = f"{'.'.join(map(str, target.least_version))} or later"
        raise UserError(f"target {target.name}", f"TensorRT {version}", expected, _instead_of(target))


def check_gpu(target: Target, here: Built) -> None:
    """Raise UserError for a GPU without the target's instructions."""
    if version_numbers(here.sm) < target.least_sm:
        expected = f"a GPU of SM {'.'.join(map(str, target.least_sm))} or later"
        raise UserError(f"target {target.name}", f"{here.gpu} (SM {here.sm})", expected, _instead_of(target))


def _instead_of(target: Target) -> str:
    return f"or star-export compile --target {target.instead}"


def _check_retention(pruned: Path, artefact: Artefact, settings: BuildSettings, version: str) -> None:
    """Check that TensorRT can build a model's selection, which takes minutes to find out otherwise.

    Raises:
        ArtefactError: The plugin library does not fit.
        UserError: The model needs the plugin and none was given, or this TensorRT cannot build it.
    """
    if settings.plugin is None and calls_plugin(pruned):
        other = f"--target {artefact.target.instead}"
        if artefact.follows_image:
            other = 'with layout = "padded" in a recipe'
        hint = f"build --plugin FILE, or compile {other}"
        raise UserError(pruned.name, "no plugin", "the library of --plugin-source, which selects", hint)
    if settings.plugin is not None:
        checked_library(settings.plugin, version)
    padded = artefact.schedule.adaptive and not artefact.follows_image
    if padded and version_numbers(version) < LEAST_CUMULATIVE:
        expected = f"{'.'.join(map(str, LEAST_CUMULATIVE))} or later, which has a cumulative sum"
        raise UserError(pruned.name, f"TensorRT {version}", expected)


def _save(  # noqa: PLR0917  (all of them are written)
    engine: Engine, path: Path, onnx: Path, settings: BuildSettings, here: Built, spec: ModelSpec
) -> BuiltEngine:
    schedule = sha256_of(onnx.parent / SCHEDULE)
    manifest = save_engine(engine, path, onnx, settings, here, schedule_sha256=schedule)
    image = spec.preprocessing.input_size
    lines = tuple(
        tuple(build_command(onnx, image, batch, settings, tensorrt=here.tensorrt))
        for batch in settings.batches
    )
    audits = tuple(
        audit(read_layers(text, profile), spec.attention_layers) for profile, text in enumerate(engine.layers)
    )
    return BuiltEngine(path.name, manifest, audits, lines)
