"""Build trtexec command lines: to build and time an engine, or to time one that is there."""

from collections.abc import Sequence
from pathlib import Path

from exporter.runtimes.tensorrt.manifest import EngineManifest, profile_for
from exporter.runtimes.tensorrt.plugin_library import LIBRARY
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import major_version
from exporter.tensor_names import IMAGES, RAW_IMAGES

__all__ = ["PROGRAM", "build_command", "load_command"]

PROGRAM = "trtexec"
# trtexec's names of the compatibility levels in HARDWARE.
_LEVELS = {"ampere-plus": "ampere+", "same-compute-capability": "sameComputeCapability"}


def build_command(
    onnx: Path,
    image: Sequence[int],
    batch: int,
    settings: BuildSettings,
    *,
    tensorrt: str = "10",
    engine: str = "",
) -> list[str]:
    """Return a command that builds an engine for one batch size and times it in a CUDA graph.

    Args:
        onnx: The model, in its export folder, whose real images are the input.
        image: [channels, height, width].
        batch: Images per run.
        settings: The settings of `star-export build`; only `batch` of its batch sizes is built.
        tensorrt: The version of TensorRT, which decides the typing flags and the default timing.
        engine: Path to save the engine to, or "".
    """
    shape = _shape(batch, image)
    words = [
        PROGRAM,
        f"--onnx={onnx}",
        *(f"--{end}Shapes={shape}" for end in ("min", "opt", "max")),
        *_run(onnx.parent, shape, batch, tensorrt),
        "--profilingVerbosity=detailed",
    ]
    # 11 always uses strong typing and has no such flag; 8.6 has neither.
    words += ["--stronglyTyped"] if major_version(tensorrt) in (9, 10) else []
    words += [] if settings.tf32 else ["--noTF32"]
    words += [f"--memPoolSize=workspace:{settings.workspace_mib}"] if settings.workspace_mib else []
    words += ["--versionCompatible"] if settings.version_compatible else []
    if settings.optimization_level is not None:
        words.append(f"--builderOptimizationLevel={settings.optimization_level}")
    words += [] if settings.aux_streams is None else [f"--maxAuxStreams={settings.aux_streams}"]
    if settings.hardware in _LEVELS:
        words.append(f"--hardwareCompatibilityLevel={_LEVELS[settings.hardware]}")
    if settings.plugin is not None:
        words.append(f"--dynamicPlugins={settings.plugin}")
        words += [f"--setPluginsToSerialize={settings.plugin}"] if settings.serialise_plugin else []
    return [*words, f"--saveEngine={engine}"] if engine else words


def load_command(
    engine: Path,
    manifest: EngineManifest,
    image: Sequence[int],
    batch: int,
    plugin: Path | None = None,
    *,
    transfers: bool = True,
    raw: Path | None = None,
) -> list[str]:
    """Return a command that times an engine at one batch size, on real images.

    Args:
        engine: An engine that `build` wrote, in a subfolder of the export folder.
        manifest: The engine's manifest.
        image: [channels, height, width].
        batch: Images per run.
        plugin: The CdfRetain library, for an engine that needs it and does not contain it.
        transfers: Whether runs copy their inputs and outputs; without, they only compute.
        raw: The folder of the raw images; None is the export folder.

    Raises:
        UserError: The engine was not built for the batch size.
    """
    words = [
        PROGRAM,
        f"--loadEngine={engine}",
        f"--useProfile={profile_for(manifest, batch, engine.name)}",
        *_run(raw or engine.parent.parent, _shape(batch, image), batch, manifest.built.tensorrt, transfers),
    ]
    # trtexec loads an engine that contains code (a runtime, perhaps a plugin) only with this flag.
    words += ["--versionCompatible"] if manifest.version_compatible else []
    return [*words, f"--dynamicPlugins={plugin or LIBRARY}"] if manifest.needs_plugin else words


def _shape(batch: int, image: Sequence[int]) -> str:
    return f"{IMAGES}:{'x'.join(map(str, (batch, *image)))}"


def _run(folder: Path, shape: str, batch: int, tensorrt: str, transfers: bool = True) -> list[str]:
    """Return the flags for input and timing: with or without copies, use a CUDA graph, spin while waiting.

    TensorRT 11 uses a graph, spins and leaves copies out unless told otherwise; 10 and 8.6 do the opposite.
    """
    if major_version(tensorrt) > 10:
        timed = ["--includeDataTransfers"] if transfers else []
    else:
        timed = ["--useCudaGraph", "--useSpinWait", *([] if transfers else ["--noDataTransfers"])]
    return [f"--shapes={shape}", f"--loadInputs={IMAGES}:{folder / RAW_IMAGES.format(batch=batch)}", *timed]
