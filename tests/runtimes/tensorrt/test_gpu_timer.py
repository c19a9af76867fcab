"""The time of an engine by CUDA events, on a stand-in for CUDA."""

import importlib.util
import itertools
import sys
from typing import Any

import numpy as np
import pytest

from exporter.errors import MissingDependencyError, UserError
from exporter.runtimes.tensorrt.gpu_timer import Cuda, GpuTimer
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
    assert (times.copy_in_ms, times.compute_ms, times.copy_out_ms) == ((1.0,) * 3, (2.0,) * 3, (0.5,) * 3)
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
        assert timed._loaded.engine.nvtx_verbosity == "none"  # marks for profilers cost time at each launch
    with (
        pytest.raises(UserError, match=r"batch \| got 3 \| need one of 1, 8"),
        GpuTimer(timed._loaded, FEED, 3, Cuda()),
    ):
        pass
    assert fake.alive == []


def test_a_failure_frees_what_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda(memory=16).installed(monkeypatch)
    with pytest.raises(UserError, match=r"cudaMalloc \| got cudaErrorMemoryAllocation"), timer(fake):
        pass
    assert fake.alive == []


def test_a_refusal_of_tensorrt_is_in_its_words(fake: FakeCuda) -> None:
    loaded = loaded_engine(FakeEngine(fake, itertools.repeat(1.0)))
    loaded.log.cause = "shape does not satisfy profile 1"
    wrong = {"images": np.zeros((8, 3), np.float32)}
    with pytest.raises(UserError, match="does not satisfy profile"), GpuTimer(loaded, wrong, 8, Cuda()):
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
