"""CUDA's answers: a value, or one line in CUDA's words."""

import sys

import pytest

from exporter.errors import MissingDependencyError, UserError
from exporter.runtimes.tensorrt.cuda import Cuda
from tests.runtimes.tensorrt.fake_cuda import FakeCuda


def test_a_call_gives_what_stands_behind_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda().installed(monkeypatch)
    cuda = Cuda()
    assert cuda.call("cudaStreamCreate") == 7
    assert cuda.call("cudaStreamSynchronize", 7) is None
    assert cuda.call("cudaStreamDestroy", 7) is None
    assert fake.alive == []


def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(memory=10).installed(monkeypatch)
    cuda = Cuda()
    with pytest.raises(UserError, match=r"cudaMalloc \| got cudaErrorMemoryAllocation"):
        cuda.call("cudaMalloc", 11)
    assert not cuda.succeeds("cudaMalloc", 11)
    assert cuda.succeeds("cudaMalloc", 10)


def test_without_cuda_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingDependencyError, match="cuda-bindings"):
        Cuda()
