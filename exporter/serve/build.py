"""Build the TensorRT engines of an export folder, and write a manifest and an audit for each."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.progress import SILENT, Stages
from exporter.core.base.records import Pair
from exporter.core.base.targets import RTX, TENSORRT, Target
from exporter.core.base.tensor_names import (
    IMAGES,
    INSTRUMENTED,
    SLICED,
    instrumented_path,
)
from exporter.engines.audit import Audit, audit, broken_promises
from exporter.engines.builder import build_plan, inspected, save_engine
from exporter.engines.cost_model import estimated_ms, slower_than
from exporter.engines.gpu import this_machine
from exporter.engines.layers import EngineLayer, read_layers
from exporter.engines.manifest import (
    ENGINES,
    Built,
    EngineManifest,
    engine_path,
    manifest_of,
)
from exporter.engines.plugin_library import calls_plugin, checked_library
from exporter.engines.programs import read_programs
from exporter.engines.settings import UNLISTED, BuildSettings
from exporter.engines.tool import Tool, require_version, tool_of, version_numbers
from exporter.engines.trtexec import save_script
from exporter.serve.export_folder import (
    REFERENCE,
    add_raw_images,
    list_built,
    read_models,
    read_reference,
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
    """One engine of a folder.

    `broken` are the promises of the target that the engine does not keep, each with its batch and block. `slow` are
    the batches at which an engine of the pruned model is estimated to be no faster than the dense one.
    """

    file: str
    manifest: EngineManifest
    broken: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


def build_folder(
    folder: Path, settings: BuildSettings, stages: Stages = SILENT
) -> tuple[BuiltEngine, ...]:
    """Build engines of the dense and the pruned model, and of the instrumented variants for `check`.

    TensorRT for RTX builds them for each compute capability of the settings, and for no GPU that is here. The
    folder gets the raw images that engines are timed on, and a script for trtexec, before TensorRT is asked for.
    """
    models = read_models(folder)
    target, pruned = models.pruned.target, models.pruned
    if not target.runtime.engines:
        hint = f"star-export compile --target {TENSORRT.name}"
        got = f"models for {target.name}"
        raise ArtefactError(folder, got, "models for TensorRT", hint)
    images = read_reference(folder / REFERENCE)[IMAGES]
    add_raw_images(images, settings.batches, folder)
    if not settings.tool.ahead:
        save_script(models, settings, folder)
    list_built(folder)
    tool = tool_of(settings.tool)
    if not tool.runtime.ahead:
        check_version(target, tool.version)
    machines = _machines(tool, settings)
    for here in machines.values():
        check_gpu(target, here)
    _check_selection(pruned, settings, tool)
    built = []
    for sm, here in machines.items():
        engines = _Engines(models, tool, here, sm)
        of_machine = replace(settings, sm=(sm,)) if sm else settings
        for model, batch, fitting in _jobs(models, of_machine):
            path = engine_path(folder / ENGINES, model.path, batch, sm)
            with stages.stage(f"engine, {path.stem}"):
                built.append(engines.build(path, model, fitting))
    list_built(folder)
    return tuple(built)


def _machines(tool: Tool, settings: BuildSettings) -> dict[int, Built]:
    """Return what to build for, by the number in the names of engines: the GPU that is here, or those of `sm`."""
    if not tool.runtime.ahead:
        return {0: this_machine(tool.version)}
    for sm in UNLISTED.intersection(settings.sm):
        logger.warning(
            "%s builds for SM %s, which its published support does not list: running there is not promised; build "
            "with TensorRT 10 or 11 on the card first",
            RTX.title,
            sm / 10,
        )
    return {
        sm: Built(tool.version, "", "", "", f"{sm // 10}.{sm % 10}")
        for sm in settings.sm
    }


@dataclass(frozen=True)
class _Engines:
    """The engines of a folder for one machine; `dense` are the audits of the dense model by batch size."""

    models: Pair[Artefact]
    tool: Tool
    here: Built
    sm: int
    dense: dict[int, Audit] = field(default_factory=dict)

    def build(
        self, path: Path, model: Artefact, settings: BuildSettings
    ) -> BuiltEngine:
        """Build an engine, audit each of its profiles, and write it with its manifest."""
        version, sm = self.here.tensorrt, self.here.sm
        cache = path.parent / f"timing.{version}.sm{sm}.cache"
        widths = self.models.pruned.schedule.widths
        plan = build_plan(
            self.tool,
            model.path,
            settings,
            sm=self.sm,
            cache=None if self.tool.runtime.ahead else cache,
            widths=widths,
        )
        listed = () if self.tool.runtime.ahead else inspected(self.tool, plan)
        profiles = (
            read_programs(plan)
            if self.tool.runtime.ahead
            else [(read_layers(profile), None) for profile in listed]
        )
        audits = {
            batch: self._audit(*profile, settings)
            for batch, profile in zip(settings.batches, profiles, strict=bool(profiles))
        }
        manifest = manifest_of(
            plan, model.path, settings, self.here, audits=tuple(audits.values())
        )
        save_engine(path, plan, manifest, listed)
        if model is self.models.dense:
            self.dense.update(audits)
        broken = _broken(model.target, audits, self.dense)
        slow = _slow(audits, self.dense) if model is self.models.pruned else ()
        return BuiltEngine(path.name, manifest, broken, slow)

    def _audit(
        self,
        layers: tuple[EngineLayer, ...],
        memory: int | None,
        settings: BuildSettings,
    ) -> Audit:
        blocks = self.models.pruned.spec.attention_layers
        milliseconds = estimated_ms(layers, self.here.sm, tf32=settings.tf32)
        return replace(audit(layers, blocks, memory), estimated_ms=milliseconds)


def _broken(
    target: Target, audits: Mapping[int, Audit], dense: Mapping[int, Audit]
) -> tuple[str, ...]:
    """Return the promises that an engine does not keep, each with its batches."""
    batches: dict[str, list[str]] = {}
    for batch, result in audits.items():
        for promise in broken_promises(result, target, dense.get(batch)):
            batches.setdefault(promise, []).append(str(batch))
    return tuple(
        f"batch {', '.join(numbers)}: {promise}" for promise, numbers in batches.items()
    )


def _slow(pruned: Mapping[int, Audit], dense: Mapping[int, Audit]) -> tuple[str, ...]:
    """Return where pruning is not expected to pay."""
    return tuple(
        f"batch {batch}: {line}"
        for batch in pruned
        if batch in dense
        for line in slower_than(dense[batch].estimated_ms, pruned[batch].estimated_ms)
    )


def _jobs(models: Pair[Artefact], settings: BuildSettings) -> Iterator[Job]:
    """Yield what each engine is built of."""
    alone = replace(settings, one_profile=False)

    def with_settings(model: Artefact) -> tuple[Artefact, BuildSettings]:
        fitting = alone.of_model(model)
        needs_plugin = calls_plugin(model.path)
        return model, fitting if needs_plugin else replace(fitting, plugin=None)

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


def check_version(target: Target, version: str) -> None:
    """Raise UserError for a version before the target's first."""
    require_version(
        f"target {target.name}", version, target.least_version, hint=_instead_of(target)
    )


def check_gpu(target: Target, here: Built) -> None:
    """Raise UserError for a GPU without the target's instructions."""
    if version_numbers(here.sm) < target.least_sm:
        got = f"{here.gpu or RTX.title} (SM {here.sm})"
        expected = f"a GPU of SM {'.'.join(map(str, target.least_sm))} or later"
        raise UserError(f"target {target.name}", got, expected, _instead_of(target))


def _instead_of(target: Target) -> str:
    return f"or star-export compile --target {target.instead}" if target.instead else ""


def _check_selection(pruned: Artefact, settings: BuildSettings, tool: Tool) -> None:
    """Check that a model's selection can be built, which takes minutes to find out otherwise."""
    name, runtime = pruned.path.name, tool.runtime
    if pruned.follows_image and not runtime.plugins:
        got = f"a model that needs a plugin, which {settings.runtime} takes none of"
        expected = "layout padded: fused attention is lost where sizes follow the image"
        raise UserError(name, got, expected, _PADDED)
    if pruned.follows_image and settings.plugin is None:
        hint = f"build --plugin FILE, or {_PADDED}"
        expected = "the library of --plugin-source, which selects"
        raise UserError(name, "no plugin", expected, hint)
    if settings.plugin is not None:
        checked_library(settings.plugin, tool.version)
    sums = pruned.schedule.adaptive and not pruned.follows_image
    if sums and not runtime.ahead:
        why = ", which has a cumulative sum"
        require_version(name, tool.version, LEAST_CUMULATIVE, why)
