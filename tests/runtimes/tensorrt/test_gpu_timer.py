"""The time of an engine by CUDA events, on a stand-in for CUDA; the GPU's clocks, sampled meanwhile."""

import importlib.util
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.errors import MissingDependencyError, UserError
from exporter.runtimes.tensorrt.gpu_timer import (
    NO_CLOCKS,
    Clocks,
    Cuda,
    GpuTimer,
    clocks_of,
    sampled_clocks,
)
from tests.runtimes.stand_ins import put_on_path
from tests.runtimes.tensorrt.fake_cuda import FakeCuda, FakeEngine, loaded_engine


def test_the_runtime_without_cuda_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    with pytest.raises(MissingDependencyError, match=r"cuda-bindings.*star-export\[tensorrt\]"):
        Cuda()


FEED = {"images": np.zeros((8, 3, 2, 2), np.float32)}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda().installed(monkeypatch)


def timer(fake: FakeCuda, *, waits: bool = False) -> GpuTimer:
    """The first run takes 9 ms, the captured or second one 2."""
    engine = FakeEngine(fake, itertools.chain([9.0], itertools.repeat(2.0)), waits=waits)
    return GpuTimer(loaded_engine(engine), FEED, 8, Cuda())


def test_copies_and_compute_apart(fake: FakeCuda) -> None:
    with timer(fake) as timed:
        times = timed.turn(3)
    assert (times.copy_in_ms, times.compute_ms, times.copy_out_ms) == (
        (1.0,) * 3,
        (2.0,) * 3,
        (0.5,) * 3,
    )
    assert (times.cuda_graph, fake.launches) == (True, 3)
    assert fake.alive == []


def test_without_a_graph_where_the_engine_waits(fake: FakeCuda) -> None:
    with timer(fake, waits=True) as timed:
        times = timed.turn(2)
    assert (times.cuda_graph, fake.launches, times.compute_ms) == (False, 0, (2.0, 2.0))
    assert fake.alive == []


def test_the_profile_is_the_batch_s(fake: FakeCuda) -> None:
    timed = timer(fake)
    with timed:
        assert timed._loaded.engine.profiles == [1]
        assert (
            timed._loaded.engine.nvtx_verbosity == "none"
        )  # marks for profilers cost time at each launch
    with (
        pytest.raises(UserError, match=r"batch \| got 3 \| need one of 1, 8"),
        GpuTimer(timed._loaded, FEED, 3, Cuda()),
    ):
        pass
    assert fake.alive == []


def test_a_failure_frees_what_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda(memory=16).installed(monkeypatch)
    with (
        pytest.raises(UserError, match=r"cudaMalloc \| got cudaErrorMemoryAllocation"),
        timer(fake),
    ):
        pass
    assert fake.alive == []


def test_a_refusal_of_tensorrt_is_in_its_words(fake: FakeCuda) -> None:
    loaded = loaded_engine(FakeEngine(fake, itertools.repeat(1.0)))
    loaded.log.cause = "shape does not satisfy profile 1"
    wrong = {"images": np.zeros((8, 3), np.float32)}
    with (
        pytest.raises(UserError, match="does not satisfy profile"),
        GpuTimer(loaded, wrong, 8, Cuda()),
    ):
        pass


@pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="needs cuda-bindings")
def test_the_fake_has_the_real_names() -> None:
    real: Any = pytest.importorskip("cuda.bindings.runtime")
    names = [name for name in dir(FakeCuda) if name.startswith("cuda")]
    assert [name for name in names if not hasattr(real, name)] == []
    for kind in ("cudaMemcpyKind", "cudaStreamCaptureMode"):
        for member in vars(getattr(FakeCuda, kind)):
            assert hasattr(getattr(real, kind), member)
    # Without a driver, creating fails as the fake's failures do: a status, and None in the value's place.
    status, text = real.cudaGetErrorString(real.cudaError_t.cudaErrorInvalidValue)
    assert (status, text) == (real.cudaError_t.cudaSuccess, b"invalid argument")


GPU = "GPU-01234567-89ab-cdef-0123-456789abcdef"
# One query a driver before 535 answers, then a line for each sample until it is ended.
OLD_DRIVER = f"""
case "$*" in
  *--id={GPU}*) ;;
  *) exit 6;;
esac
case "$*" in
  *clocks_event*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;;
  *loop-ms*) while true; do echo '1410, 1593, 1980, 299.50, 55, 0x0000000000000004'; sleep 0.01; done;;
  *) echo 0x0000000000000000;;
esac
"""


def test_medians_while_the_gpu_is_busy() -> None:
    lines = (
        "300, 405, 1980, 70.1, 30, 0x0000000000000001",  # idle, before the first run
        "1980, 2619, 1980, 300.0, 50, 0x0000000000000000",
        "1410, 2619, 1980, 350.0, 54, 0x0000000000000004",
        "1200, 2619, 1980, 349.0, 55, 0x0000000000000044",
        "1410, 26",  # cut off at the end
        "[N/A], 2619, 1980, 300.0, 50, 0x0000000000000000",
    )
    slowed = ("software power cap", "hardware thermal slowdown")
    assert clocks_of(lines) == Clocks(3, 1410, 1200, 1980, 2619, 349, 54, slowed)


@pytest.mark.parametrize(
    "lines", [(), ("", "No devices were found"), ("300, 405, 1980, 70.1, 30, 0x1",)]
)
def test_nothing_while_it_was_busy(lines: tuple[str, ...]) -> None:
    assert clocks_of(lines) == NO_CLOCKS


def test_samples_end_with_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path("nvidia-smi", OLD_DRIVER, tmp_path, monkeypatch)
    with sampled_clocks(GPU) as samples:
        time.sleep(0.2)
    found = clocks_of(samples)
    assert found.samples > 1
    assert (found.sm_mhz, found.power_w, found.slowed_by) == (
        1410,
        299.5,
        ("software power cap",),
    )


def test_a_measurement_that_fails_ends_the_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path("nvidia-smi", OLD_DRIVER, tmp_path, monkeypatch)
    with pytest.raises(KeyError), sampled_clocks(GPU):
        raise KeyError


def test_no_nvidia_smi_or_one_that_does_not_know_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path("nvidia-smi", OLD_DRIVER, tmp_path, monkeypatch)
    for gpu in ("", "GPU-of-another-machine", GPU):
        if gpu == GPU:
            monkeypatch.setenv("PATH", "/nowhere")
        with sampled_clocks(gpu) as samples:
            pass
        assert clocks_of(samples) == NO_CLOCKS
