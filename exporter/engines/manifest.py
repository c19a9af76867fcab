"""The manifest of an engine: a JSON file with its source and machine. An engine fits one TensorRT and GPU model.

TensorRT checks this too, but late and in many lines. Here the first mismatch is reported before the engine loads.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.core.base.canonical_json import load_json
from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.files import sha256_of
from exporter.engines.layer_info import Audit
from exporter.engines.settings import BuildSettings
from exporter.engines.tensorrt_api import version_numbers

ENGINES = "engines"


@dataclass(frozen=True)
class Built:
    """The machine that an engine was built on. `sm` is "9.0" for compute capability 9.0; versions are strings."""

    tensorrt: str
    cuda: str
    driver: str
    gpu: str
    sm: str


@dataclass(frozen=True)
class EngineManifest:
    """An engine's sources, the settings of its build, and its machine.

    Checksums are those of the files; `plugin_sha256` is "" without a plugin. The `settings` have no path of that
    machine: their `plugin` is None, with or without one. TensorRT for RTX needs neither GPU nor driver to build,
    and `built` then names none. `audits` are those of each profile.
    """

    engine_sha256: str
    onnx: str
    onnx_sha256: str
    plugin_sha256: str
    settings: BuildSettings
    built: Built
    audits: tuple[Audit, ...] = ()

    @property
    def needs_plugin(self) -> bool:
        """Whether the CdfRetain library must be registered before the engine loads, which does not contain it."""
        return bool(self.plugin_sha256) and not self.settings.serialise_plugin


def manifest_of(
    plan: bytes,
    onnx: Path,
    settings: BuildSettings,
    here: Built,
    *,
    audits: tuple[Audit, ...] = (),
) -> EngineManifest:
    """Describe an engine that was built of an ONNX file with these settings; `here` is this machine."""
    return EngineManifest(
        engine_sha256=hashlib.sha256(plan).hexdigest(),
        onnx=onnx.name,
        onnx_sha256=sha256_of(onnx),
        plugin_sha256="" if settings.plugin is None else sha256_of(settings.plugin),
        settings=replace(settings, plugin=None),
        built=here,
        audits=audits,
    )


def engine_path(folder: Path, onnx: Path, batch: int = 0, sm: int = 0) -> Path:
    """Return the path of an ONNX file's engine: that of all batch sizes, or that of `batch` alone.

    One of TensorRT for RTX is named by the compute capability that it was built for, 80 for 8.0.
    """
    return (
        folder
        / f"{onnx.stem}{f'.batch{batch}' if batch else ''}{f'.rtx-sm{sm}' if sm else ''}.engine"
    )


def manifest_path(engine: Path) -> Path:
    """Return the path of an engine's manifest."""
    return engine.with_suffix(".json")


def commands_path(engine: Path) -> Path:
    """Return the path of the file with the commands that time an engine and build its like."""
    return engine.with_suffix(".commands.txt")


def read_manifest(engine: Path) -> EngineManifest:
    """Read the manifest beside an engine."""
    if not engine.is_file():
        raise ArtefactError(
            engine, "no such file", "an engine", "star-export build FOLDER makes it"
        )
    path = manifest_path(engine)
    if not path.is_file():
        raise ArtefactError(
            path, "no such file", "the manifest that star-export build writes"
        )
    return load_json(EngineManifest, path)


def check_manifest(
    engine: Path, onnx: Path, here: Built, plugin: Path | None = None
) -> EngineManifest:
    """Check that an engine fits this machine, its ONNX model, and the plugin library to be loaded, if any."""
    manifest = read_manifest(engine)
    wanted = [
        ("plan", manifest.engine_sha256, sha256_of(engine)),
        ("ONNX", manifest.onnx_sha256, sha256_of(onnx)),
    ]
    if plugin is not None and manifest.needs_plugin:
        wanted.append(("plugin", manifest.plugin_sha256, sha256_of(plugin)))
    for name, built, present in wanted:
        if built != present:
            got = f"an engine of {name} sha256 {built[:12]}…"
            raise _mismatch(engine, got, f"{present[:12]}… of this folder")
    for name in _binding(manifest):
        built = getattr(manifest.built, name)
        present = getattr(here, name)
        if built != present:
            got = f"an engine built for {name} {built}"
            raise _mismatch(engine, got, f"{name} {present}, which is here")
    if version_numbers(manifest.built.tensorrt) > version_numbers(here.tensorrt):
        got = f"an engine of TensorRT {manifest.built.tensorrt}"
        raise _mismatch(
            engine, got, f"one of {here.tensorrt}, which is here, or earlier"
        )
    return manifest


def profile_for(manifest: EngineManifest, batch: int, name: str) -> int:
    """Return the index of the profile for a batch size."""
    sizes = manifest.settings.batches
    fitting = [
        size
        for size in sizes
        if size == batch or (manifest.settings.any_batch and size > batch)
    ]
    if not fitting:
        built = ", ".join(map(str, sizes))
        raise UserError(
            f"{name}: batch", str(batch), f"one of {built}", f"build --batches {batch}"
        )
    return sizes.index(fitting[0])


def _binding(manifest: EngineManifest) -> tuple[str, ...]:
    """Return the fields of `Built` that must match this machine; fewer for a compatible engine."""
    settings = manifest.settings
    if settings.tool.ahead:
        return ("tensorrt", "sm")
    bound = {"none": ("gpu", "sm"), "same-compute-capability": ("sm",)}.get(
        settings.hardware, ()
    )
    return bound if settings.version_compatible else ("tensorrt", *bound)


def _mismatch(engine: Path, got: str, need: str) -> ArtefactError:
    return ArtefactError(engine, got, need, "star-export build FOLDER builds it again")
