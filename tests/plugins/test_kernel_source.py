"""The kernels' own source, run on the CPU thread by thread, against the reference: barriers, warps, indices.

What this cannot show: the GPU's arithmetic and races within a warp. `gpu_check.py` does, on a GPU.
"""

import shutil
import subprocess
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.plugins.builds import SOURCE
from tests.plugins.implementations import HostLibrary, mismatches, selected, top_k_of
from tests.plugins.rows import Case, cases

FAKE_CUDA = Path(__file__).parent / "cuda_on_cpu"

# The one line that C++ has no other word for: memory whose size the launch decides.
SHARED = "extern __shared__ Patch patches[];"
INSTEAD = "Patch* const patches = reinterpret_cast<Patch*>(fibers::gDynamicShared.data());"


@pytest.fixture(scope="module")
def kernel_on_cpu(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("kernel")
    for kernel in ("cdf_retain_kernel", "select_top_k_kernel"):
        source = (SOURCE / f"{kernel}.cu").read_text(encoding="utf-8")
        assert source.count(SHARED) == 1
        (folder / f"{kernel}.cpp").write_text(source.replace(SHARED, INSTEAD), encoding="utf-8")
    flags = [
        "-std=c++17",
        "-O2",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fPIC",
        "-shared",
    ]
    flags += ["-U_FORTIFY_SOURCE"]  # which lets no jump lead to the stack of another fiber
    includes = [f"-I{path}" for path in (folder, FAKE_CUDA, SOURCE)]
    library = folder / "libkernel.so"
    subprocess.run(
        ["g++", *flags, *includes, FAKE_CUDA / "kernel_host.cpp", "-o", library], check=True
    )
    return HostLibrary(library)


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
        lengths |= {(case.score.shape[1], bool((case.valid_count < case.score.shape[1]).any()))}
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


def test_every_row_selects_its_top_k(kernel_on_cpu: HostLibrary) -> None:
    """Scores below zero and broken ones too; prefix tokens of none and of more than a warp."""
    lengths = set[int]()
    for turn, case in enumerate(islice(cases(), 5, None, 29)):
        score = case.score * np.float32(-1) if turn % 2 else case.score
        k, prefix = top_k_of(case), (0, 1, 40)[turn % 3]
        found = kernel_on_cpu.select(score, k, prefix)
        assert found is not None
        np.testing.assert_array_equal(found, selected(score, k, prefix))
        lengths.add(score.shape[1])
    assert {1, 31, 32, 33, 196, 256, 257, 1024, 4096} <= lengths


def test_counts_out_of_range_are_refused(kernel_on_cpu: HostLibrary) -> None:
    for patches, k, prefix in ((3, 4, 0), (3, 0, 0), (4097, 1, 0), (3, 1, -1)):
        assert kernel_on_cpu.select(np.zeros((1, patches), np.float32), k, prefix) is None
