"""The manifest of an engine: a JSON file with its source and machine. An engine fits one TensorRT and GPU model.

TensorRT checks this too, but late and in many lines. Here the first mismatch is reported before the engine loads.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.core.base.canonical_json import load_json
from exporter.core.base.errors import ArtefactError, UserError, as_written
from exporter.core.base.files import sha256_of
from exporter.engines.audit import Audit
from exporter.engines.settings import BuildSettings

ENGINES = "engines"
_AGAIN = "star-export build FOLDER builds it again"


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
        """Whether the CdfRetain library must be registered before the engine loads."""
        return bool(self.plugin_sha256)


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
    of_batch = f".batch{batch}" if batch else ""
    of_card = f".rtx-sm{sm}" if sm else ""
    return folder / f"{onnx.stem}{of_batch}{of_card}.engine"


def manifest_path(engine: Path) -> Path:
    """Return the path of an engine's manifest."""
    return engine.with_suffix(".json")


def read_manifest(engine: Path) -> EngineManifest:
    """Read the manifest beside an engine."""
    if not engine.is_file():
        hint = "star-export build FOLDER makes it"
        raise ArtefactError(engine, "no such file", "an engine", hint)
    with as_written(manifest_path(engine), "the manifest of an engine"):
        return load_json(EngineManifest, manifest_path(engine))


def check_manifest(
    engine: Path, onnx: Path, here: Built, plugin: Path | None = None
) -> EngineManifest:
    """Check that an engine fits this machine, its ONNX model, and the plugin library to be loaded, if any."""
    manifest = read_manifest(engine)
    built = manifest.built
    files = {engine: manifest.engine_sha256, onnx: manifest.onnx_sha256}
    if plugin is not None and manifest.needs_plugin:
        files[plugin] = manifest.plugin_sha256
    for file, digest in files.items():
        if sha256_of(file) != digest:
            got = f"an engine built with another {file.name}"
            raise ArtefactError(engine, got, "the one of this folder", _AGAIN)
    for name in _binding(manifest):
        then, now = getattr(built, name), getattr(here, name)
        if then != now:
            got = f"one built for {name} {then}"
            expected = f"{name} {now}, which is here"
            raise ArtefactError(engine, got, expected, _AGAIN)
    return manifest


def _binding(manifest: EngineManifest) -> tuple[str, ...]:
    """Return the fields of `Built` that must match this machine; fewer for a compatible engine.

    Which later version loads it, TensorRT says itself.
    """
    settings = manifest.settings
    if settings.tool.ahead:
        return ("tensorrt", "sm")
    bound = {"none": ("gpu", "sm"), "same-compute-capability": ("sm",)}.get(
        settings.hardware, ()
    )
    return bound if settings.version_compatible else ("tensorrt", *bound)


def profile_for(manifest: EngineManifest, batch: int, name: str) -> int:
    """Return the index of the profile for a batch size."""
    for index, (least, most) in enumerate(manifest.settings.profiles):
        if least <= batch <= most:
            return index
    built = ", ".join(map(str, manifest.settings.batches))
    hint = f"build --batches {batch}"
    raise UserError(f"{name}: batch", str(batch), f"one of {built}", hint)
