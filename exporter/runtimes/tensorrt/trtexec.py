"""Build trtexec command lines for an engine, run them, and read the times they export."""

import json
import logging
import re
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
from exporter.runtimes.tensorrt.plugin_library import LIBRARY
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import major_version, version_numbers
from exporter.tensor_names import IMAGES, RAW_IMAGES

__all__ = ["build_command", "has_trtexec", "load_command", "read_times", "run_trtexec"]

logger = logging.getLogger(__name__)

PROGRAM = "trtexec"
# trtexec's names of the compatibility levels in HARDWARE.
_LEVELS = {"ampere-plus": "ampere+", "same-compute-capability": "sameComputeCapability"}
# Before 10, trtexec always runs the first profile of an engine.
_KNOWS_PROFILES = 10
# The version as one number, from 10 on: major · 10000 + minor · 100 + patch.
_BANNER = re.compile(r"\[TensorRT v(\d+)\]")
_MAJOR_UNIT = 10_000
# What 10 and 11 print where a graph cannot be captured; the words around it differ.
_GRAPH_FAILED = "launched without using CUDA graph"


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
    engine: Path, manifest: EngineManifest, image: Sequence[int], batch: int, plugin: Path | None = None
) -> list[str]:
    """Return a command that times an engine at one batch size, on the real images of the export folder.

    Args:
        engine: An engine that `build` wrote, in a subfolder of the export folder.
        manifest: The engine's manifest.
        image: [channels, height, width].
        batch: Images per run.
        plugin: The CdfRetain library, for an engine that needs it and does not contain it.

    Raises:
        UserError: The engine was not built for the batch size.
    """
    words = [
        PROGRAM,
        f"--loadEngine={engine}",
        f"--useProfile={profile_for(manifest, batch, engine.name)}",
        *_run(engine.parent.parent, _shape(batch, image), batch, manifest.built.tensorrt),
    ]
    # trtexec loads an engine that contains code (a runtime, perhaps a plugin) only with this flag.
    words += ["--versionCompatible"] if manifest.version_compatible else []
    return [*words, f"--dynamicPlugins={plugin or LIBRARY}"] if manifest.needs_plugin else words


def has_trtexec(tensorrt: str) -> bool:
    """Return whether trtexec is on PATH, of the engines' version, and can run any profile of an engine.

    Args:
        tensorrt: The version of TensorRT that built the engines.
    """
    if shutil.which(PROGRAM) is None or major_version(tensorrt) < _KNOWS_PROFILES:
        return False
    found, wanted = _trtexec_version(), version_numbers(tensorrt)[:3]
    if found != wanted:
        shown = ".".join(map(str, found)) or "an unknown version"
        logger.warning("trtexec on PATH is of TensorRT %s, the engines are of %s: not used", shown, tensorrt)
    return found == wanted


def _trtexec_version() -> tuple[int, ...]:
    """Return the major, minor and patch number that trtexec prints at its start; () if it prints none."""
    done = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False)
    banner = _BANNER.search(done.stdout + done.stderr)
    if banner is None:
        return ()
    number = int(banner[1])
    major = number // _MAJOR_UNIT
    return major, number % _MAJOR_UNIT // 100, number % 100


def run_trtexec(words: list[str], *more: str) -> RunTimes:
    """Run a command of this module with `more` flags, and read its times.

    Raises:
        UserError: trtexec is missing or fails; quotes the last error that it printed.
    """
    if shutil.which(words[0]) is None:
        raise UserError(words[0], "no such program", "TensorRT's trtexec on PATH")
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        command = [*words, *more, f"--exportTimes={times}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode or not times.is_file():
            errors = [line for line in log.splitlines() if "[E]" in line]
            reason = errors[-1] if errors else f"exit status {done.returncode}"
            raise UserError(words[0], reason, "a successful run", shlex.join(words))
        return read_times(times, cuda_graph=_GRAPH_FAILED not in log)


def read_times(path: Path, *, cuda_graph: bool = True) -> RunTimes:
    """Read the JSON of --exportTimes: one record per run, times in milliseconds.

    Raises:
        ArtefactError: The file cannot be read, or has no such times.
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
    """Return the flags for input and timing: include copies, use a CUDA graph, spin while waiting.

    TensorRT 11 uses a graph and spins by default, and needs a flag to include copies.
    """
    timed = (
        ["--includeDataTransfers"] if major_version(tensorrt) > 10 else ["--useCudaGraph", "--useSpinWait"]
    )
    return [f"--shapes={shape}", f"--loadInputs={IMAGES}:{folder / RAW_IMAGES.format(batch=batch)}", *timed]
