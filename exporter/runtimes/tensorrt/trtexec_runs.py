"""Run trtexec, and read the times that it exports."""

import json
import logging
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from exporter.errors import ArtefactError, UserError, reason_of
from exporter.runtimes.tensorrt.gpu_timer import RunTimes
from exporter.runtimes.tensorrt.tensorrt_api import major_version, version_numbers
from exporter.runtimes.tensorrt.trtexec import PROGRAM

__all__ = ["Load", "has_trtexec", "read_load", "read_times", "run_load", "run_profile", "run_trtexec"]

Array = np.ndarray[Any, Any]
ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)

# Before 10, trtexec always runs the first profile of an engine.
_KNOWS_PROFILES = 10
# The version as one number, from 10 on: major · 10000 + minor · 100 + patch.
_BANNER = re.compile(r"\[TensorRT v(\d+)\]")
_MAJOR_UNIT = 10_000
# What 10 and 11 print where a graph cannot be captured; the words around it differ.
_GRAPH_FAILED = "launched without using CUDA graph"


@dataclass(frozen=True)
class Load:
    """Latencies under sustained load, copies included unless left out: milliseconds by percentile of all runs."""

    PERCENTILES: ClassVar = (50, 90, 95, 99)

    streams: int
    runs: int
    images_per_s: float
    percentiles_ms: dict[int, float]


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
        logger.warning(
            "trtexec on PATH is not used: it is of TensorRT %s, the engines are of %s", shown, tensorrt
        )
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
    return _exported(words, more, lambda times, graph: read_times(times, cuda_graph=graph))


def run_load(words: list[str], batch: int, seconds: int, streams: int) -> Load:
    """Run a command of this module with requests queued without a pause, and read their latencies.

    Args:
        words: The command, from `load_command`.
        batch: Images per run.
        seconds: How long, after half a second of warm-up.
        streams: Execution contexts that run at the same time.

    Raises:
        UserError: trtexec is missing or fails.
    """
    more = ("--warmUp=500", f"--duration={seconds}", f"--infStreams={streams}")
    return _exported(words, more, lambda times, _: read_load(times, batch, streams))


def run_profile(words: list[str], tensorrt: str) -> dict[str, float]:
    """Run a command of this module with TensorRT's profiler; return each layer's milliseconds per run by its name.

    Args:
        words: The command, from `load_command`.
        tensorrt: The version; from 11 on the profiler always has runs of its own.

    Raises:
        UserError: trtexec is missing or fails.
        ArtefactError: It exported no such times.
    """
    apart = ["--separateProfileRun"] if major_version(tensorrt) < 11 else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        run_trtexec(words, "--warmUp=200", "--duration=1", "--dumpProfile", *apart, f"--exportProfile={path}")
        return _layer_times(path)


def _layer_times(path: Path) -> dict[str, float]:
    """Read the JSON of --exportProfile: the number of runs, then a record for each layer."""
    try:
        records = [each for each in json.loads(path.read_text(encoding="utf-8")) if "name" in each]
        times: dict[str, float] = {}
        for each in records:  # two layers may share a name
            times[each["name"]] = times.get(each["name"], 0.0) + float(each["averageMs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = reason_of(error)
        raise ArtefactError(str(path), got, "layer times that trtexec exported") from None
    return times


def _exported(words: list[str], more: Sequence[str], read: Callable[[Path, bool], ResultT]) -> ResultT:
    """Run trtexec and read what it exports; `read` is also told whether a CUDA graph was captured."""
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
        return read(times, _GRAPH_FAILED not in log)


def read_times(path: Path, *, cuda_graph: bool = True) -> RunTimes:
    """Read the JSON of --exportTimes: one record per run, times in milliseconds.

    Raises:
        ArtefactError: The file cannot be read, or has no such times.
    """
    columns = _columns(path, "h2dMs", "computeMs", "d2hMs")
    copied_in, computed, copied_out = (tuple(column.tolist()) for column in columns)
    return RunTimes(copied_in, computed, copied_out, cuda_graph)


def read_load(path: Path, batch: int, streams: int) -> Load:
    """Read the same JSON as runs under sustained load, which overlap.

    Raises:
        ArtefactError: The file cannot be read, or has no such times.
    """
    start, end, latency = _columns(path, "startEnqMs", "endD2hMs", "latencyMs")
    elapsed_s = float(end.max() - start.min()) / 1e3
    return Load(
        streams=streams,
        runs=len(latency),
        images_per_s=batch * len(latency) / elapsed_s,
        # Measured times, without interpolation.
        percentiles_ms={
            each: float(np.percentile(latency, each, method="higher")) for each in Load.PERCENTILES
        },
    )


def _columns(path: Path, *keys: str) -> list[Array]:
    """Read a column for each key, a value for each run."""
    expected = "times that trtexec exported"
    try:
        runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        columns = [np.array([float(run[key]) for run in runs]) for key in keys]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(str(path), reason_of(error), expected) from None
    if not runs:
        raise ArtefactError(str(path), "no runs", expected)
    return columns
