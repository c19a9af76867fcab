"""All that only a GPU can tell about CdfRetain, in one command: `python -m tests.plugins.gpu_check`.

The kernels, and the plugin's enqueue() where TENSORRT_INCLUDE_DIR is set, against the reference on the rows of the
CPU tests; compute-sanitizer's memcheck, racecheck and initcheck; the time of a call in a CUDA graph.
Needs numpy, CMake and nvcc; without CMake it takes the programs that it finds in the build folder.
Exits with 0 if all is well, 1 if not, 2 if there is no GPU or nothing to run.
"""

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from exporter.core.prune.ops.cdf_reference import Retained
from tests.plugins.implementations import mismatches
from tests.plugins.rows import Case, cases

ROOT = Path(__file__).parents[2]
SANITIZERS = ("memcheck", "racecheck", "initcheck")
GOAL_US = 8.0
# Batch and patches of the timed calls: the goal's, then larger images, and one image alone.
TIMED = (
    (128, 196),
    (128, 576),
    (128, 1024),
    (128, 4096),
    (1, 196),
    (1, 576),
    (1, 1024),
    (1, 4096),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every check; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build/plugin", help="the build folder"
    )
    parser.add_argument(
        "--no-sanitizer", action="store_true", help="leave compute-sanitizer out"
    )
    options = parser.parse_args(arguments)
    if not has_gpu():
        return _refuse("gpu | got none | need a CUDA GPU and its driver")
    if shutil.which("cmake"):
        build(options.build)
    kernel, plugin = options.build / "check_kernel", options.build / "check_plugin"
    if not kernel.is_file():
        return _refuse(
            f"{kernel} | got no such program | need it built, or CMake, nvcc and g++ to build it"
        )
    commands: dict[str, list[Path | str]] = {"kernel": [kernel]}
    if plugin.is_file():
        commands["enqueue"] = [plugin, options.build / "libcdf_retain_plugin.so"]
    with tempfile.TemporaryDirectory() as folder:
        results = [
            compare(name, command, Path(folder)) for name, command in commands.items()
        ]
        if not options.no_sanitizer:
            results += [sanitize(tool, kernel, Path(folder)) for tool in SANITIZERS]
        measure(kernel, Path(folder))
    return 0 if all(results) else 1


def has_gpu() -> bool:
    """Whether the CUDA driver is here and sees a device."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return (
        driver.cuInit(0) == 0
        and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )


def build(folder: Path) -> None:
    """Build all that can be built here; CMake says what is skipped."""
    subprocess.run(
        ["cmake", "-S", str(ROOT / "plugins/tensorrt"), "-B", str(folder)], check=True
    )
    subprocess.run(["cmake", "--build", str(folder), "--parallel"], check=True)


def compare(name: str, command: Sequence[Path | str], folder: Path) -> bool:
    """Whether an implementation gives what its reference does, on every row."""
    asked, results = folder / "cases", folder / "results"
    write_cases(asked, cases())
    subprocess.run([*command, asked, results], check=True)
    rows = wrong = 0
    for case, result in zip(cases(), read_results(results, cases()), strict=True):
        rows += len(case.score)
        wrong += mismatches(case, result)
    _say(f"{name}: {rows} rows, {wrong} of them not the reference's")
    return rows > 0 and wrong == 0


def sanitize(tool: str, kernel: Path, folder: Path) -> bool:
    """Whether a tool of compute-sanitizer finds nothing, on one case in ten."""
    if shutil.which("compute-sanitizer") is None:
        _say(f"{tool}: compute-sanitizer is not here")
        return False
    asked = folder / "some_cases"
    write_cases(asked, (case for turn, case in enumerate(cases()) if turn % 10 == 0))
    command = [
        "compute-sanitizer",
        "--tool",
        tool,
        "--error-exitcode",
        "1",
        str(kernel),
        str(asked),
        os.devnull,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = done.stdout.strip().splitlines() or [done.stderr.strip()]
    _say(f"{tool}: {told[-1]}")
    return done.returncode == 0


def measure(kernel: Path, folder: Path) -> None:
    """Say what a call costs, by batch and patches; one block works on a row."""
    for batch, patches in TIMED:
        score = (
            np.random.default_rng(0).pareto(1.5, (batch, patches)).astype(np.float32)
        )
        write_cases(
            folder / "timed",
            [Case(score, np.full(batch, patches), float(np.float32(0.7)))],
        )
        done = subprocess.run(
            [kernel, folder / "timed"], check=True, capture_output=True, text=True
        )
        goal = f" (goal: {GOAL_US:g} µs)" if (batch, patches) == TIMED[0] else ""
        _say(
            f"time: {done.stdout.strip()} µs a call for {batch} × {patches} in a CUDA graph{goal}"
        )


def write_cases(path: Path, batch: Iterable[Case]) -> None:
    """Write cases as checks/case_file.h reads them."""
    with path.open("wb") as file:
        for case in batch:
            file.write(np.array(case.score.shape, np.int64).tobytes())
            file.write(np.array([case.mass, 0], np.float32).tobytes())
            file.write(case.score.astype(np.float32).tobytes())
            file.write(case.valid_count.astype(np.int64).tobytes())


def read_results(path: Path, asked: Iterable[Case]) -> Iterator[Retained]:
    """Read results as checks/case_file.h writes them, one for each case."""
    with path.open("rb") as file:
        for case in asked:
            rows = len(case.score)
            width = np.frombuffer(file.read(8), np.int64)[0]
            count = np.frombuffer(file.read(8 * rows), np.int64)
            index = np.frombuffer(file.read(8 * rows * int(width)), np.int64)
            yield Retained(index.reshape(rows, width), count, np.array(width))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _refuse(line: str) -> int:
    sys.stderr.write(line + "\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
