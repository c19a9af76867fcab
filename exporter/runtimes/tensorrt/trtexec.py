"""The trtexec commands that do what we do, and the times that it exports: the word of NVIDIA's own tool."""

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exporter.errors import ArtefactError, UserError
from exporter.runtimes.tensorrt.gpu_timer import RunTimes
from exporter.runtimes.tensorrt.manifest import EngineManifest, profile_for
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import major_version
from exporter.tensor_names import IMAGES, RAW_IMAGES

__all__ = ["build_command", "has_trtexec", "load_command", "read_times", "run_trtexec"]

PROGRAM = "trtexec"
# The compatibility levels of HARDWARE in its words.
_LEVELS = {"ampere-plus": "ampere+", "same-compute-capability": "sameComputeCapability"}
# Before 10 it runs the first profile of an engine, whatever the shapes.
_KNOWS_PROFILES = 10
_GRAPH_FAILED = "graph capture failed"


def build_command(
    onnx: Path,
    image: Sequence[int],
    batch: int,
    settings: BuildSettings,
    *,
    tensorrt: str = "10",
    engine: str = "",
) -> list[str]:
    """Build for one batch and time it, on the real images of the export folder, in a CUDA graph.

    Args:
        onnx: The model, in its folder.
        image: [channels, height, width].
        batch: Images a run.
        settings: As for our own build; one batch of it is measured.
        tensorrt: The version, which decides how the graph's types are kept, and what is timed by default.
        engine: Where to save the engine, or the empty text.
    """
    shape = _shape(batch, image)
    words = [
        PROGRAM,
        f"--onnx={onnx}",
        *(f"--{end}Shapes={shape}" for end in ("min", "opt", "max")),
        *_run(onnx.parent, shape, batch, tensorrt),
        "--profilingVerbosity=detailed",
    ]
    # 11 knows nothing but strong typing and has no such flag; 8.6 has none either.
    words += ["--stronglyTyped"] if major_version(tensorrt) in (9, 10) else []
    words += [] if settings.tf32 else ["--noTF32"]
    words += [f"--memPoolSize=workspace:{settings.workspace_mib}"] if settings.workspace_mib else []
    words += ["--versionCompatible"] if settings.version_compatible else []
    if settings.hardware in _LEVELS:
        words.append(f"--hardwareCompatibilityLevel={_LEVELS[settings.hardware]}")
    if settings.plugin is not None:
        words.append(f"--dynamicPlugins={settings.plugin}")
        words += [f"--setPluginsToSerialize={settings.plugin}"] if settings.serialise_plugin else []
    return [*words, f"--saveEngine={engine}"] if engine else words


def load_command(
    engine: Path, manifest: EngineManifest, image: Sequence[int], batch: int, plugin: Path | None = None
) -> list[str]:
    """Time an engine that `build` left, at one of its batches, on the real images of the export folder.

    Args:
        engine: In a folder of its own within the export folder.
        manifest: The engine's.
        image: [channels, height, width].
        batch: Images a run.
        plugin: The CdfRetain library, for an engine that needs it and does not carry it.

    Raises:
        UserError: The engine was not built for the batch.
    """
    words = [
        PROGRAM,
        f"--loadEngine={engine}",
        f"--useProfile={profile_for(manifest, batch, engine.name)}",
        *_run(engine.parent.parent, _shape(batch, image), batch, manifest.built.tensorrt),
    ]
    # Only under this flag does it let an engine carry code, be that a runtime or a plugin.
    words += ["--versionCompatible"] if manifest.version_compatible or manifest.plugin_serialised else []
    needs_plugin = manifest.plugin_sha256 and not manifest.plugin_serialised
    return [*words, f"--dynamicPlugins={plugin}"] if needs_plugin else words


def has_trtexec(tensorrt: str) -> bool:
    """Whether there is a trtexec on PATH that can run any profile of an engine."""
    return shutil.which(PROGRAM) is not None and major_version(tensorrt) >= _KNOWS_PROFILES


def run_trtexec(words: list[str], *more: str) -> RunTimes:
    """Run a command of this module, with `more` flags, and read its times.

    Raises:
        UserError: There is no trtexec, or it fails; with the last error it printed.
    """
    if shutil.which(words[0]) is None:
        raise UserError(words[0], "no such program", "the one of TensorRT's package on PATH")
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        command = [*words, *more, f"--exportTimes={times}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode or not times.is_file():
            errors = [line for line in log.splitlines() if "[E]" in line]
            reason = errors[-1] if errors else f"exit status {done.returncode}"
            raise UserError(words[0], reason, "a run that ends well", shlex.join(words))
        return read_times(times, cuda_graph=_GRAPH_FAILED not in log)


def read_times(path: Path, *, cuda_graph: bool = True) -> RunTimes:
    """The JSON of --exportTimes: one record a run, times in milliseconds.

    Raises:
        ArtefactError: It is no such file.
    """
    try:
        runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        copied_in, computed, copied_out = (
            tuple(float(run[key]) for run in runs) for key in ("h2dMs", "computeMs", "d2hMs")
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            str(path), f"{type(error).__name__}: {error}", "times that trtexec exported"
        ) from None
    if not runs:
        raise ArtefactError(str(path), "no runs", "times that trtexec exported")
    return RunTimes(copied_in, computed, copied_out, cuda_graph)


def _shape(batch: int, image: Sequence[int]) -> str:
    return f"{IMAGES}:{'x'.join(map(str, (batch, *image)))}"


def _run(folder: Path, shape: str, batch: int, tensorrt: str) -> list[str]:
    """What to run on, and how: copies timed, in a graph, waiting without sleep.

    11 does the latter two by itself, and leaves the copies out unless told.
    """
    timed = (
        ["--includeDataTransfers"] if major_version(tensorrt) > 10 else ["--useCudaGraph", "--useSpinWait"]
    )
    return [f"--shapes={shape}", f"--loadInputs={IMAGES}:{folder / RAW_IMAGES.format(batch=batch)}", *timed]
