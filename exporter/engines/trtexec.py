"""The trtexec command that does what we do, and the times that it exports: the word of NVIDIA's own tool."""

import json
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exporter.engines.library import major_version
from exporter.engines.settings import BuildSettings
from exporter.errors import ArtefactError, UserError
from exporter.tensor_names import IMAGES, RAW_IMAGES

__all__ = ["TrtexecTimes", "command", "read_times", "run_trtexec"]


@dataclass(frozen=True)
class TrtexecTimes:
    """What trtexec measured of one engine at one batch; images_per_s from the median latency.

    Latency is copy to the GPU, compute and copy back; `compute` the GPU's own part.
    """

    batch: int
    runs: int
    images_per_s: float
    latency_median_ms: float
    latency_p99_ms: float
    compute_median_ms: float
    compute_p99_ms: float


def command(
    onnx: Path,
    image: tuple[int, ...],
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
        tensorrt: The version, which decides how the graph's types are kept.
        engine: Where to save the engine, or the empty text.
    """
    shape = "x".join(map(str, (batch, *image)))
    images = onnx.parent / RAW_IMAGES.format(batch=batch)
    words = [
        "trtexec",
        f"--onnx={onnx}",
        *(f"--{end}Shapes={IMAGES}:{shape}" for end in ("min", "opt", "max")),
        f"--shapes={IMAGES}:{shape}",
        f"--loadInputs={IMAGES}:{images}",
        "--useCudaGraph",
        "--useSpinWait",
        "--profilingVerbosity=detailed",
    ]
    # 11 knows nothing but strong typing and has no such flag; 8.6 has none either.
    words += ["--stronglyTyped"] if major_version(tensorrt) in (9, 10) else []
    words += [] if settings.tf32 else ["--noTF32"]
    words += [f"--memPoolSize=workspace:{settings.workspace_mib}"] if settings.workspace_mib else []
    words += ["--versionCompatible"] if settings.version_compatible else []
    if settings.hardware != "none":
        first, *rest = settings.hardware.split("-")
        words.append(f"--hardwareCompatibilityLevel={first}{''.join(each.capitalize() for each in rest)}")
    if settings.plugin is not None:
        words.append(f"--dynamicPlugins={settings.plugin}")
        words += [f"--setPluginsToSerialize={settings.plugin}"] if settings.serialise_plugin else []
    return [*words, f"--saveEngine={engine}"] if engine else words


def run_trtexec(words: list[str], batch: int) -> TrtexecTimes:
    """Run a command of `command` and read its times.

    Raises:
        UserError: There is no trtexec, or it fails; with the last error it printed.
    """
    if shutil.which(words[0]) is None:
        raise UserError(words[0], "no such program", "the one of TensorRT's package on PATH")
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        done = subprocess.run([*words, f"--exportTimes={times}"], capture_output=True, text=True, check=False)
        if done.returncode or not times.is_file():
            errors = [line for line in (done.stdout + done.stderr).splitlines() if "[E]" in line]
            reason = errors[-1] if errors else f"exit status {done.returncode}"
            raise UserError(words[0], reason, "a run that ends well", shlex.join(words))
        return read_times(times, batch)


def read_times(path: Path, batch: int) -> TrtexecTimes:
    """The JSON of --exportTimes: one record a run, times in milliseconds.

    Raises:
        ArtefactError: It is no such file.
    """
    try:
        runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        latency, compute = (np.array([float(run[key]) for run in runs]) for key in ("latencyMs", "computeMs"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(
            str(path), f"{type(error).__name__}: {error}", "times that trtexec exported"
        ) from None
    if not latency.size:
        raise ArtefactError(str(path), "no runs", "times that trtexec exported")
    median = float(np.median(latency))
    return TrtexecTimes(
        batch=batch,
        runs=len(latency),
        images_per_s=batch / median * 1e3,
        latency_median_ms=median,
        latency_p99_ms=float(np.percentile(latency, 99, method="higher")),
        compute_median_ms=float(np.median(compute)),
        compute_p99_ms=float(np.percentile(compute, 99, method="higher")),
    )
