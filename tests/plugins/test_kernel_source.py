"""The kernels' own source, run on the CPU thread by thread, against the reference: barriers, warps, indices.

What this cannot show: the GPU's arithmetic and races within a warp. `gpu_check.py` does, on a GPU.
"""

import shutil
import subprocess
from itertools import islice
from pathlib import Path

import pytest

from tests.plugins.builds import SOURCE
from tests.plugins.implementations import HostLibrary, mismatches
from tests.plugins.rows import cases

FAKE_CUDA = Path(__file__).parent / "cuda_on_cpu"

# The one line that C++ has no other word for: memory whose size the launch decides.
SHARED = "extern __shared__ Patch patches[];"
INSTEAD = "Patch* const patches = reinterpret_cast<Patch*>(fibers::gDynamicShared.data());"


@pytest.fixture(scope="module")
def kernel_on_cpu(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("kernel")
    source = (SOURCE / "cdf_retain_kernel.cu").read_text(encoding="utf-8")
    assert source.count(SHARED) == 1
    (folder / "kernel.cpp").write_text(source.replace(SHARED, INSTEAD), encoding="utf-8")
    flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    includes = [f"-I{path}" for path in (folder, FAKE_CUDA, SOURCE)]
    library = folder / "libkernel.so"
    subprocess.run(["g++", *flags, *includes, FAKE_CUDA / "kernel_host.cpp", "-o", library], check=True)
    return HostLibrary(library)


def test_every_row_equals_the_reference(kernel_on_cpu: HostLibrary) -> None:
    rows = wrong = 0
    for case in islice(cases(), 0, None, 17):
        result = kernel_on_cpu(case)
        assert result is not None
        rows += len(case.score)
        wrong += mismatches(case, result)
    assert rows > 2_000
    assert wrong == 0
