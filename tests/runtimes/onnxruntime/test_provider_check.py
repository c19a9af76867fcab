"""Where each node ran, from a profile: a model whose work fell back to the CPU is refused."""

from pathlib import Path

import numpy as np
import pytest

from exporter.errors import UserError
from exporter.runtimes.onnxruntime import provider_check
from exporter.runtimes.onnxruntime.profile import Kernel, profile
from exporter.runtimes.onnxruntime.provider_check import require_provider, strays
from tests.tiny_onnx import SIDE, linear_classifier

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
FEED = {"images": np.zeros((1, 3, SIDE, SIDE), np.float32)}


def kernel(operator: str, provider: str) -> Kernel:
    return Kernel(operator.lower(), operator, 0.1, provider)


def test_sizes_may_stay_on_the_cpu() -> None:
    assert strays([kernel("Shape", CPU), kernel("Concat", CPU), kernel("MatMul", CUDA)], CUDA) == {}


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (
            [kernel("MatMul", CUDA), kernel("Attention", CPU), kernel("Attention", CPU)],
            "got 2 Attention on CPU",
        ),
        ([kernel("Shape", CPU)], "no kernel of it"),
        ([], "no kernel of it"),
    ],
)
def test_a_silent_fall_back_is_refused(
    kernels: list[Kernel], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_check, "profile", lambda *_, **__: tuple(kernels))
    with pytest.raises(UserError, match=message):
        require_provider(Path("m.onnx"), (CUDA, CPU), FEED)


@pytest.mark.ort
def test_a_real_profile_names_the_provider() -> None:
    assert {each.provider for each in profile(linear_classifier(), FEED, runs=1)} == {CPU}


def test_the_cpu_is_not_profiled() -> None:
    require_provider(Path("none.onnx"), (CPU,), FEED)
