"""NVIDIA's trtexec: a script that builds and times a folder's models with it alone, and runs that time engines."""

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ArtefactError, UserError, reason_of
from exporter.core.base.files import written_beside
from exporter.core.base.records import Pair
from exporter.core.base.targets import TRT, Runtime
from exporter.core.base.tensor_names import IMAGES, RAW_IMAGES
from exporter.engines.manifest import EngineManifest, profile_for
from exporter.engines.plugin_library import LIBRARY, calls_plugin
from exporter.engines.settings import BuildSettings
from exporter.engines.tool import major_version

SCRIPT = "trtexec.sh"
# TensorRT 11 types as in the file, spins and uses a CUDA graph; it leaves copies out unless told otherwise.
HEAD = f"""\
#!/bin/sh
# Builds an engine of each model with NVIDIA's trtexec alone, and times it on real images.
# Call it in this folder: sh {SCRIPT}
case "$(trtexec --help 2>&1)" in
*"TensorRT v10"*) flags="--stronglyTyped --useSpinWait" graph=--useCudaGraph ;;
*) flags=--includeDataTransfers graph= ;;
esac
"""
# trtexec's names of the compatibility levels in HARDWARE.
_LEVELS = {"ampere-plus": "ampere+", "same-compute-capability": "sameComputeCapability"}


def save_script(models: Pair[Artefact], settings: BuildSettings, folder: Path) -> None:
    """Write the script of an export folder: a line for each model and batch size."""
    lines = [
        _line(model, batch, settings)
        for model in (models.dense, models.pruned)
        for batch in settings.batches
    ]
    with written_beside(folder / SCRIPT) as partial:
        partial.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _line(model: Artefact, batch: int, settings: BuildSettings) -> str:
    """Return the command that builds and times a model; where sizes follow the image, no graph can be captured."""
    onnx = Path(model.path.name)
    shape = _shape(batch, model.spec.preprocessing.input_size)
    words = [
        TRT.program,
        f"--onnx={onnx}",
        f"--saveEngine={onnx.with_suffix(f'.batch{batch}.plan')}",
        "--timingCacheFile=trtexec.cache",
        *(f"--{end}Shapes={shape}" for end in ("min", "opt", "max")),
        f"--shapes={shape}",
        _images(Path(), batch),
        *_building(settings.of_model(model), calls_plugin(model.path)),
    ]
    graph = "" if model.follows_image else " $graph"
    return f"{shlex.join(words)} $flags{graph}"


def _building(settings: BuildSettings, has_plugin: bool) -> list[str]:
    """Return the flags of a build. The library is that of the settings, else one in the folder."""
    words = ["--profilingVerbosity=detailed"]
    if not settings.tf32:
        words.append("--noTF32")
    if settings.version_compatible:
        words.append("--versionCompatible")
    if settings.optimization_level is not None:
        words.append(f"--builderOptimizationLevel={settings.optimization_level}")
    if settings.hardware in _LEVELS:
        words.append(f"--hardwareCompatibilityLevel={_LEVELS[settings.hardware]}")
    if has_plugin:
        words.append(f"--dynamicPlugins={settings.plugin or LIBRARY}")
    return words


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
    """Return a command that times an engine at one batch size on real images, [channels, height, width] each.

    Runs copy their inputs and outputs, or without `transfers` only compute. The raw images are in the folder
    `raw`, by default the export folder, in a subfolder of which the engine lies. `plugin` is for an engine that
    does not contain it. UserError if the engine was not built for the batch size.

    TensorRT 11 and TensorRT for RTX use a graph, spin and leave copies out unless told otherwise; 10 does the
    opposite. An engine of the latter is compiled to the end where it first runs: a cache keeps what was compiled.
    """
    tool = manifest.settings.tool
    words = [
        tool.program,
        f"--loadEngine={engine}",
        f"--useProfile={profile_for(manifest, batch, engine.name)}",
        f"--shapes={_shape(batch, image)}",
        _images(raw or engine.parent.parent, batch),
    ]
    if tool.ahead or major_version(manifest.built.tensorrt) > 10:
        words += ["--includeDataTransfers"] if transfers else []
    else:
        words += ["--useCudaGraph", "--useSpinWait"]
        words += [] if transfers else ["--noDataTransfers"]
    if tool.ahead:
        words.append(f"--runtimeCacheFile={engine.with_suffix('.cache')}")
    # trtexec loads an engine that contains code (a runtime, perhaps a plugin) only with this flag.
    if manifest.settings.version_compatible:
        words.append("--versionCompatible")
    if manifest.needs_plugin:
        words.append(f"--dynamicPlugins={plugin or LIBRARY}")
    return words


def _shape(batch: int, image: Sequence[int]) -> str:
    return f"{IMAGES}:{'x'.join(map(str, (batch, *image)))}"


def _images(folder: Path, batch: int) -> str:
    return f"--loadInputs={IMAGES}:{folder / RAW_IMAGES.format(batch=batch)}"


# What 10 and 11 print where a graph cannot be captured; the words around it differ.
_GRAPH_FAILED = "launched without using CUDA graph"
# What a run of --exportTimes has beside other times (samples/common/sampleReporting.cpp).
_TIMES = ("startEnqMs", "endD2hMs", "h2dMs", "computeMs", "d2hMs", "latencyMs")


@dataclass(frozen=True)
class RunTimes:
    """Times of each run of an engine, in milliseconds: copy to the GPU, compute, copy to the host."""

    copy_in_ms: tuple[float, ...]
    compute_ms: tuple[float, ...]
    copy_out_ms: tuple[float, ...]
    cuda_graph: bool


@dataclass(frozen=True)
class Load:
    """Latencies under sustained load, copies included unless left out: milliseconds by percentile of all runs."""

    PERCENTILES: ClassVar = (50, 90, 95, 99)

    streams: int
    images_per_s: float
    percentiles_ms: dict[int, float]


def require_program(tool: Runtime) -> None:
    """Raise UserError unless NVIDIA's program is on PATH; engines of another version it refuses itself."""
    if shutil.which(tool.program) is None:
        expected = f"{tool.program} of {tool.title} on PATH, which measures GPU time"
        raise UserError(
            tool.program, "no such program", expected, "or bench --no-gpu-time"
        )


def run_trtexec(words: list[str], *more: str) -> RunTimes:
    """Run a command of this module with `more` flags, and read its times."""
    runs, graph = _exported(words, more)
    copied_in, computed, copied_out = (
        tuple(run[key] for run in runs) for key in ("h2dMs", "computeMs", "d2hMs")
    )
    return RunTimes(copied_in, computed, copied_out, graph)


def run_load(words: list[str], batch: int, seconds: int, streams: int) -> Load:
    """Run a command of `load_command` with requests queued without a pause, and read their latencies.

    It runs for `seconds` after half a second of warm-up, in `streams` execution contexts at the same time.
    UserError if trtexec fails.
    """
    more = ("--warmUp=500", f"--duration={seconds}", f"--infStreams={streams}")
    runs, _ = _exported(words, more)
    return load_of(runs, batch, streams)


def _exported(
    words: list[str], more: Sequence[str]
) -> tuple[list[dict[str, float]], bool]:
    """Run trtexec; return the record of each run that it exports, and whether a CUDA graph was captured."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        command = [*words, *more, f"--exportTimes={times}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        if done.returncode:
            errors = [line for line in log.splitlines() if "[E]" in line]
            reason = errors[-1] if errors else f"exit status {done.returncode}"
            raise UserError(words[0], reason, "a successful run", shlex.join(words))
        return read_runs(times), _GRAPH_FAILED not in log


def read_runs(path: Path) -> list[dict[str, float]]:
    """Read the JSON of --exportTimes: one record per run, times in milliseconds."""
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))
        times = [{key: float(run[key]) for key in _TIMES} for run in runs]
        if not times:
            raise ValueError("no runs")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(path, reason_of(error), "what trtexec exported") from None
    return times


def load_of(runs: Sequence[Mapping[str, float]], batch: int, streams: int) -> Load:
    """Return what runs that overlap, under sustained load, tell of latencies."""
    start, end, latency = (
        np.array([run[key] for run in runs])
        for key in ("startEnqMs", "endD2hMs", "latencyMs")
    )
    elapsed_s = float(end.max() - start.min()) / 1e3
    return Load(
        streams=streams,
        images_per_s=batch * len(latency) / elapsed_s,
        # Measured times, without interpolation.
        percentiles_ms={
            share: float(np.percentile(latency, share, method="higher"))
            for share in Load.PERCENTILES
        },
    )
