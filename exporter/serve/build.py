"""Build the TensorRT engines of an export folder, and write a manifest and an audit for each."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.progress import SILENT, Stages
from exporter.core.base.targets import RTX, TENSORRT, Target
from exporter.core.base.tensor_names import (
    IMAGES,
    INSTRUMENTED,
    SLICED,
    instrumented_path,
)
from exporter.engines.builder import build_engine, save_engine
from exporter.engines.cost_model import estimated_ms, left_out, slower_than
from exporter.engines.known_faults import known_faults
from exporter.engines.layer_info import (
    Audit,
    EngineLayer,
    audit,
    broken_promises,
    read_layers,
)
from exporter.engines.manifest import (
    ENGINES,
    Built,
    EngineManifest,
    engine_path,
    manifest_of,
)
from exporter.engines.plugin_library import calls_plugin, checked_library
from exporter.engines.rtx import build_ahead, read_programs
from exporter.engines.runner import this_machine
from exporter.engines.settings import UNLISTED, BuildSettings
from exporter.engines.tensorrt_api import (
    import_rtx,
    import_tensorrt,
    require_version,
    version_numbers,
)
from exporter.engines.trtexec import (
    build_command,
    folder_lines,
    save_commands,
)
from exporter.serve.export_folder import (
    ExportFolder,
    add_raw_images,
    list_built,
    read_folder,
)

logger = logging.getLogger(__name__)

# Before, the parser turns a cumulative sum into a loop of as many steps as there are patches.
LEAST_CUMULATIVE = (10, 8)
# `check` runs the instrumented variants in parts: with 1 any batch, with 8 in fewer parts.
VARIANT_BATCHES = (1, 8)
_PADDED = 'star-export compile with layout = "padded" in a recipe'

# An engine's model, its batch size if it has one alone, else 0, and its settings.
Job: TypeAlias = tuple[Artefact, int, BuildSettings]


@dataclass(frozen=True)
class BuiltEngine:
    """One engine of a folder, and for each batch an equivalent command of its tool.

    `broken` are the promises of the target that the engine does not keep, each with its batch and block. `slow` are
    the batches at which an engine of the pruned model is estimated to be no faster than the dense one.
    """

    file: str
    manifest: EngineManifest
    trtexec: tuple[tuple[str, ...], ...]
    broken: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


def build_folder(
    folder: Path, settings: BuildSettings, stages: Stages = SILENT
) -> tuple[BuiltEngine, ...]:
    """Build engines of the dense and the pruned model, and of the instrumented variants for `check`.

    TensorRT for RTX builds them for each compute capability of the settings, and for no GPU that is here.
    """
    export = read_folder(folder)
    _check_runtime(folder, export.target)
    if settings.tool.ahead:
        return tuple(_build_ahead(export, settings, stages))
    trt = import_tensorrt()
    check_version(export.target, trt.__version__)
    for line in known_faults(export.models.pruned, trt.__version__):
        logger.warning("%s", line)
    here = this_machine(trt.__version__)
    check_gpu(export.target, here)
    artefact = export.models.pruned
    _check_retention(export.models.pruned, settings, trt.__version__)
    cache = folder / ENGINES / f"timing.{here.tensorrt}.sm{here.sm}.cache"
    engines, built = _Engines(export, here), []
    for job in _jobs(export, settings):
        model, batch, engine_settings = job
        path = engine_path(folder / ENGINES, model.path, batch)
        with stages.stage(f"engine, {path.stem}"):
            plan, texts = build_engine(
                trt, model.path, engine_settings, cache, artefact.schedule.widths
            )
            profiles = [(read_layers(text), None) for text in texts]
            built.append(engines.save(path, job, plan, profiles, texts))
    list_built(folder)
    return tuple(built)


def lines_for(folder: Path, settings: BuildSettings) -> list[str]:
    """Return the lines that build and time both models with NVIDIA's programs alone, called in the folder.

    The folder gets the raw images that they read.

    Raises:
        ArtefactError: A file does not match its checksum, or the target is another runtime.
    """
    export = read_folder(folder)
    _check_runtime(folder, export.target)
    add_raw_images(export.read_reference()[IMAGES], settings.batches, folder)
    return folder_lines(export.models, settings)


def _build_ahead(
    export: ExportFolder, settings: BuildSettings, stages: Stages
) -> Iterator[BuiltEngine]:
    """Build with TensorRT for RTX; the folder gets the raw images of all batches, for whoever has the card."""
    rtx, artefact = import_rtx(), export.models.pruned
    machines = {
        sm: Built(rtx.__version__, "", "", "", f"{sm // 10}.{sm % 10}")
        for sm in settings.sm
    }
    for here in machines.values():
        check_gpu(export.target, here)
    if artefact.follows_image:
        got = f"a model that needs a plugin, which {settings.runtime} takes none of"
        expected = "layout padded: fused attention is lost where sizes follow the image"
        raise UserError(export.models.pruned.path.name, got, expected, _PADDED)
    for sm, here in machines.items():
        if sm in UNLISTED:
            logger.warning(
                "%s builds for SM %s, which its published support does not list: running there is not "
                "promised; build with TensorRT 10 or 11 on the card first",
                RTX.title,
                here.sm,
            )
        engines = _Engines(export, here)
        for job in _jobs(export, replace(settings, sm=(sm,))):
            model, batch, engine_settings = job
            path = engine_path(export.place / ENGINES, model.path, batch, sm)
            with stages.stage(f"engine, {path.stem}"):
                plan = build_ahead(
                    rtx, model.path, sm, engine_settings, artefact.schedule.widths
                )
                yield engines.save(path, job, plan, read_programs(plan))
    add_raw_images(export.read_reference()[IMAGES], settings.batches, export.place)
    list_built(export.place)


@dataclass(frozen=True)
class _Engines:
    """The engines of a folder for one machine; `dense` are the audits of the dense model by batch size."""

    export: ExportFolder
    here: Built
    dense: dict[int, Audit] = field(default_factory=dict)

    def save(
        self,
        path: Path,
        job: Job,
        plan: bytes,
        profiles: Iterable[tuple[tuple[EngineLayer, ...], int | None]],
        texts: tuple[str, ...] = (),
    ) -> BuiltEngine:
        """Audit an engine by its profiles' layers and bytes of activations; write it, its manifest and `texts`."""
        model, _, settings = job
        models = self.export.models
        audits = tuple(self._audit(*profile, settings) for profile in profiles)
        manifest = manifest_of(plan, model.path, settings, self.here, audits=audits)
        save_engine(path, plan, manifest, texts)
        by_batch = dict(zip(settings.batches, audits, strict=bool(audits)))
        if model is models.dense:
            self.dense.update(by_batch)
        engine = _with_commands(path, manifest, model, settings, self.dense)
        if model is models.pruned:
            return replace(engine, slow=_slow(by_batch, self.dense))
        return engine

    def _audit(
        self,
        layers: tuple[EngineLayer, ...],
        memory: int | None,
        settings: BuildSettings,
    ) -> Audit:
        blocks = self.export.models.pruned.spec.attention_layers
        milliseconds = estimated_ms(layers, self.here.sm, tf32=settings.tf32)
        return replace(
            audit(layers, blocks, memory),
            estimated_ms=milliseconds,
            left_out=left_out(layers) if milliseconds else (),
        )


def _slow(pruned: Mapping[int, Audit], dense: Mapping[int, Audit]) -> tuple[str, ...]:
    """Return where pruning is not expected to pay; nothing where an estimate leaves a layer out."""
    lines = []
    for batch in filter(dense.__contains__, pruned):
        audits = dense[batch], pruned[batch]
        if not any(result.left_out for result in audits):
            slower = slower_than(*(result.estimated_ms for result in audits))
            lines += [f"batch {batch}: {line}" for line in slower]
    return tuple(lines)


def _jobs(export: ExportFolder, settings: BuildSettings) -> Iterator[Job]:
    """Yield what each engine is built of."""
    models, alone = export.models, replace(settings, one_profile=False)

    def with_settings(model: Artefact) -> tuple[Artefact, BuildSettings]:
        fitting = alone.of_model(model)
        return model, fitting if calls_plugin(model.path) else fitting.without_plugin

    both = [with_settings(model) for model in (models.dense, models.pruned)]
    for model, plain in both:
        yield model, 0, plain
    if models.pruned.prunes:
        tracing, forced, sliced = (
            replace(models.pruned, path=instrumented_path(models.pruned.path, role))
            for role in (*INSTRUMENTED, SLICED)
        )
        few = (
            tuple(batch for batch in settings.batches if batch in VARIANT_BATCHES)
            or settings.batches[:1]
        )
        for model, plain in map(with_settings, (tracing, forced)):
            yield model, 0, replace(plain, batches=few)
        if sliced.path.is_file():
            yield sliced, 0, with_settings(sliced)[1]
    if settings.one_profile:
        for model, plain in both:
            for batch in settings.batches:
                yield model, batch, replace(plain, batches=(batch,))


def _check_runtime(folder: Path, target: Target) -> None:
    if not target.runtime.engines:
        expected = "models for TensorRT"
        hint = f"star-export compile --target {TENSORRT.name}"
        raise ArtefactError(folder, f"models for {target.name}", expected, hint)


def check_version(target: Target, version: str) -> None:
    """Raise UserError for a version before the target's first."""
    require_version(
        f"target {target.name}", version, target.least_version, hint=_instead_of(target)
    )


def check_gpu(target: Target, here: Built) -> None:
    """Raise UserError for a GPU without the target's instructions."""
    if version_numbers(here.sm) < target.least_sm:
        expected = f"a GPU of SM {'.'.join(map(str, target.least_sm))} or later"
        raise UserError(
            f"target {target.name}",
            f"{here.gpu} (SM {here.sm})",
            expected,
            _instead_of(target),
        )


def _instead_of(target: Target) -> str:
    return f"or star-export compile --target {target.instead}" if target.instead else ""


def _check_retention(pruned: Artefact, settings: BuildSettings, version: str) -> None:
    """Check that TensorRT can build a model's selection, which takes minutes to find out otherwise."""
    if settings.plugin is None and pruned.follows_image:
        hint = f"build --plugin FILE, or {_PADDED}"
        raise UserError(
            pruned.path.name,
            "no plugin",
            "the library of --plugin-source, which selects",
            hint,
        )
    if settings.plugin is not None:
        checked_library(settings.plugin, version)
    cumulative = pruned.schedule.adaptive and not pruned.follows_image
    if cumulative:
        require_version(
            pruned.path.name, version, LEAST_CUMULATIVE, ", which has a cumulative sum"
        )


def _with_commands(
    path: Path,
    manifest: EngineManifest,
    model: Artefact,
    settings: BuildSettings,
    dense: Mapping[int, Audit],
) -> BuiltEngine:
    """Return an engine as the result has it, and write the commands that time it beside it.

    `dense` are the audits of the dense model by batch size, as far as its memory is known.
    """
    save_commands(path, manifest, model, settings)
    image = model.spec.preprocessing.input_size
    version = manifest.built.tensorrt
    lines = tuple(
        tuple(build_command(model.path, image, batch, settings, tensorrt=version))
        for batch in settings.batches
    )
    broken: dict[str, list[str]] = {}
    for batch, result in zip(
        settings.batches, manifest.audits, strict=bool(manifest.audits)
    ):
        for promise in broken_promises(result, model.target, dense.get(batch)):
            broken.setdefault(promise, []).append(str(batch))
    messages = tuple(
        f"batch {', '.join(batches)}: {promise}" for promise, batches in broken.items()
    )
    return BuiltEngine(path.name, manifest, lines, messages)
