"""The kernels' own source, run on the CPU thread by thread, against the reference: barriers, warps, indices, races.

What this cannot show: the GPU's arithmetic. `gpu_check.py` does, on a GPU.
"""

import multiprocessing
import shutil
import subprocess
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.plugins.builds import FAKE_CUDA, SOURCE, built
from tests.plugins.implementations import HostLibrary, mismatches
from tests.plugins.rows import Case, cases

# It is compiled.
pytestmark = pytest.mark.exhaustive

KERNELS = ("cdf_retain_kernel.cu",)
HEADERS = ("cdf_retain_block.h",)

# The one line that C++ has no other word for: memory whose size the launch decides.
SHARED = "extern __shared__ Patch patches[];"
INSTEAD = "Patch* const patches = reinterpret_cast<Patch*>(fibers::dynamicShared());"

# Fortified, jumps may not lead to the stack of another fiber; unique, two builds would share their variables.
FLAGS = [
    "-std=c++17",
    "-O2",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-U_FORTIFY_SOURCE",
    "-fno-gnu-unique",
]

LIBRARY = "libkernel.so"
BARRIER = "__syncthreads();"
# Each barrier of the kernels: its file, and which it is there.
BARRIERS = [
    (name, index)
    for name in (*HEADERS, *KERNELS)
    for index in range((SOURCE / name).read_text(encoding="utf-8").count(BARRIER))
]


def build(
    folder: Path, *, racing: bool = False, without: tuple[str, int] | None = None
) -> HostLibrary:
    """The kernels on the CPU, `racing`: any thread may go on at any access; `without` one of their barriers."""
    for name in (*HEADERS, *KERNELS):
        source = (SOURCE / name).read_text(encoding="utf-8").replace(SHARED, INSTEAD)
        if without is not None and without[0] == name:
            parts = source.split(BARRIER)
            index = without[1] + 1
            source = ";".join(
                (BARRIER.join(parts[:index]), BARRIER.join(parts[index:]))
            )
        (folder / name).with_suffix(".cpp" if name in KERNELS else ".h").write_text(
            source
        )
    includes = [f"-I{path}" for path in (folder, FAKE_CUDA, SOURCE)]
    objects = []
    for source_path in sorted(FAKE_CUDA.glob("*.cpp")):
        objects.append(folder / f"{source_path.stem}.o")
        # What runs the threads is not part of what is watched.
        watched = (
            ["-fsanitize=thread"]
            if racing and source_path.stem == "kernel_host"
            else []
        )
        command = ["g++", *FLAGS, *watched, *includes, "-c", str(source_path)]
        subprocess.run([*command, "-o", str(objects[-1])], check=True)
    library = folder / LIBRARY
    subprocess.run(["g++", "-shared", *objects, "-o", library], check=True)
    return HostLibrary(library)


@pytest.fixture(scope="module", autouse=True)
def _needs_a_compiler() -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")


@pytest.fixture(scope="module")
def kernel_on_cpu() -> HostLibrary:
    return HostLibrary(built("kernel", build) / LIBRARY)


@pytest.fixture(scope="module")
def racing_kernel() -> HostLibrary:
    return HostLibrary(built("racing", partial(build, racing=True)) / LIBRARY)


def test_the_one_line_of_dynamic_memory_is_in_each_kernel() -> None:
    for name in KERNELS:
        assert (SOURCE / name).read_text(encoding="utf-8").count(SHARED) == 1


def test_every_row_equals_the_reference(kernel_on_cpu: HostLibrary) -> None:
    rows = wrong = 0
    batches = set[int]()
    lengths = set[tuple[int, bool]]()  # patches, and whether rows end before them
    for case in islice(cases(), 0, None, 17):
        result = kernel_on_cpu(case)
        assert result is not None
        rows += len(case.score)
        wrong += mismatches(case, result)
        batches.add(len(case.score))
        lengths |= {
            (case.score.shape[1], bool((case.valid_count < case.score.shape[1]).any()))
        }
    assert rows > 2_000
    assert wrong == 0
    assert {1, 2, 12, 60} <= batches
    both = {
        (patches, ragged)
        for patches in (31, 32, 33, 196, 256, 257, 1024)
        for ragged in (False, True)
    }
    assert both | {(1, False), (4095, True), (4096, False)} <= lengths


@pytest.mark.parametrize("value", [1e-45, 1.0, float(np.finfo(np.float32).max)])
@pytest.mark.parametrize("patches", [257, 4096])
def test_equal_scores_take_the_longest_search(
    kernel_on_cpu: HostLibrary, value: float, patches: int
) -> None:
    """The last survivor then differs from the next patch in the lowest bit of a key alone."""
    case = Case(np.full((1, patches), value, np.float32), np.array([patches]), 0.5)
    result = kernel_on_cpu(case)
    assert result is not None
    assert mismatches(case, result) == 0


def faults(library: HostLibrary, step: int) -> int:
    """Wrong rows and races, over every so many-th case."""
    wrong = 0
    for case in islice(cases(), 3, None, step):
        result = library(case)
        assert result is not None
        wrong += mismatches(case, result)
    return wrong + library.take_races()


def test_no_race_where_any_thread_may_go_on_at_any_access(
    racing_kernel: HostLibrary,
) -> None:
    assert faults(racing_kernel, 151) == 0


def test_no_race_on_more_rows(racing_kernel: HostLibrary) -> None:
    assert faults(racing_kernel, 23) == 0


FAULTY = 3


def _exit_by_faults(folder: Path, barrier: tuple[str, int] | None) -> None:
    library = build(folder, racing=True, without=barrier)
    raise SystemExit(FAULTY if faults(library, 151) else 0)


@pytest.mark.parametrize("barrier", [None, *BARRIERS], ids=str)
def test_each_barrier_is_missed_where_it_is_gone(
    tmp_path: Path, barrier: tuple[str, int] | None
) -> None:
    """By a race or a wrong row; a crash, or threads that wait for ever, show it too: hence a process."""
    process = multiprocessing.get_context("spawn").Process(
        target=_exit_by_faults, args=(tmp_path, barrier)
    )
    process.start()
    process.join(300)
    process.kill()
    process.join()
    assert process.exitcode is not None
    if barrier is None:
        assert process.exitcode == 0
    else:
        assert process.exitcode == FAULTY or process.exitcode < 0
