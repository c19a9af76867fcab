"""What an engine was built from and for, as JSON beside it: an engine fits one TensorRT and one kind of GPU.

TensorRT finds out too, but late, and in many lines. What differs is named here before the engine is read.
"""

from dataclasses import dataclass
from pathlib import Path

from exporter.errors import ArtefactError, UserError
from exporter.files import sha256_of
from exporter.records import load_json
from exporter.runtimes.tensorrt.plugin_library import LIBRARY
from exporter.runtimes.tensorrt.settings import BuildSettings

__all__ = [
    "ENGINES",
    "Built",
    "EngineManifest",
    "build_settings",
    "check_manifest",
    "engine_path",
    "manifest_path",
    "profile_for",
    "read_manifest",
]

ENGINES = "engines"


@dataclass(frozen=True)
class Built:
    """The machine that an engine is for. `sm` is "9.0" for compute capability 9.0; versions as strings."""

    tensorrt: str
    cuda: str
    driver: str
    gpu: str
    sm: str


@dataclass(frozen=True)
class EngineManifest:
    """An engine: what it was made of, and where it runs.

    `onnx_sha256`, `schedule_sha256` and `plugin_sha256` are of the files; "" without a plugin. `plugin_serialised`
    says whether the engine carries the library. `batches` are the sizes it was built for, one profile each;
    under `any_batch` a profile takes those down to the one before too. `workspace_mib`, where it is not 0, is the
    memory that tactics had; under `tf32` fp32 products may be computed in TF32.
    `hardware` is the compatibility level by name: under "AMPERE_PLUS" another GPU will do, under
    "SAME_COMPUTE_CAPABILITY" another of the same SM; under `version_compatible` another TensorRT of its major one.
    """

    engine_sha256: str
    onnx: str
    onnx_sha256: str
    schedule_sha256: str
    plugin_sha256: str
    plugin_serialised: bool
    batches: tuple[int, ...]
    any_batch: bool
    workspace_mib: int
    tf32: bool
    hardware: str
    version_compatible: bool
    strongly_typed: bool
    built: Built


def engine_path(folder: Path, onnx: Path) -> Path:
    """Where the engine of an ONNX file lies."""
    return folder / f"{onnx.stem}.engine"


def manifest_path(engine: Path) -> Path:
    """Where the manifest of an engine lies."""
    return engine.with_suffix(".json")


def read_manifest(engine: Path) -> EngineManifest:
    """The manifest beside an engine.

    Raises:
        ArtefactError: The engine or the manifest is not there, or is broken.
    """
    if not engine.is_file():
        raise ArtefactError(str(engine), "no such file", "an engine", "star-export build FOLDER makes it")
    path = manifest_path(engine)
    if not path.is_file():
        raise ArtefactError(str(path), "no such file", "the manifest that star-export build leaves")
    return load_json(EngineManifest, path)


def check_manifest(engine: Path, onnx: Path, here: Built, plugin: Path | None = None) -> EngineManifest:
    """Hold an engine to this machine and to the model that it is said to be of.

    Args:
        engine: The engine.
        onnx: The ONNX file it should be of.
        here: This machine.
        plugin: The library that will be loaded for it, where there is one.

    Raises:
        ArtefactError: The first thing that differs, in one line.
    """
    manifest = read_manifest(engine)
    wanted = [
        ("plan", manifest.engine_sha256, sha256_of(engine)),
        ("ONNX", manifest.onnx_sha256, sha256_of(onnx)),
    ]
    if plugin is not None and manifest.plugin_sha256 and not manifest.plugin_serialised:
        wanted.append(("plugin", manifest.plugin_sha256, sha256_of(plugin)))
    for what, built, found in wanted:
        if built != found:
            raise _mismatch(
                engine, f"an engine of {what} sha256 {built[:12]}…", f"{found[:12]}… of this folder"
            )
    for name in _binding(manifest):
        built, found = getattr(manifest.built, name), getattr(here, name)
        if built != found:
            raise _mismatch(engine, f"an engine built for {name} {built}", f"{name} {found}, which is here")
    if manifest.version_compatible and not _same_major(manifest.built.tensorrt, here.tensorrt):
        raise _mismatch(
            engine, f"an engine of TensorRT {manifest.built.tensorrt}", f"that of {here.tensorrt}"
        )
    return manifest


def profile_for(manifest: EngineManifest, batch: int, name: str) -> int:
    """The number of the profile that takes a batch.

    Raises:
        UserError: There is none; `name` is the engine's.
    """
    sizes = manifest.batches
    fitting = [size for size in sizes if size == batch or (manifest.any_batch and size > batch)]
    if not fitting:
        built = ", ".join(map(str, sizes))
        raise UserError(f"{name}: batch", str(batch), f"one of {built}", f"build --batches {batch}")
    return sizes.index(fitting[0])


def build_settings(manifest: EngineManifest, plugin: Path | None = None) -> BuildSettings:
    """The settings that an engine was built with, but for what leaves no trace in it: timings, variants.

    Args:
        manifest: The engine's.
        plugin: Where its CdfRetain library is; the library's name where nobody says.
    """
    return BuildSettings(
        batches=manifest.batches,
        any_batch=manifest.any_batch,
        workspace_mib=manifest.workspace_mib,
        hardware=manifest.hardware.lower().replace("_", "-"),
        version_compatible=manifest.version_compatible,
        tf32=manifest.tf32,
        plugin=(plugin or Path(LIBRARY)) if manifest.plugin_sha256 else None,
        serialise_plugin=manifest.plugin_serialised,
    )


def _binding(manifest: EngineManifest) -> tuple[str, ...]:
    """What must be the same here: less, where the engine was built to be compatible."""
    bound = {"NONE": ("gpu", "sm"), "SAME_COMPUTE_CAPABILITY": ("sm",)}.get(manifest.hardware, ())
    return bound if manifest.version_compatible else ("tensorrt", *bound)


def _same_major(built: str, here: str) -> bool:
    return built.split(".", maxsplit=1)[0] == here.split(".", maxsplit=1)[0]


def _mismatch(engine: Path, got: str, need: str) -> ArtefactError:
    return ArtefactError(str(engine), got, need, "star-export build FOLDER makes it anew")
