"""Kernels: their times, and who ran them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.errors import UserError
from exporter.runtimes.onnxruntime.profile import Kernel, kernels_of, profile, require_provider, strays
from tests.tiny_onnx import SIDE, linear_classifier


def node(name: str, operator: str, ts: int, dur: int) -> dict[str, Any]:
    args = {"op_name": operator}
    return {"cat": "Node", "ph": "X", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": args}


def run(ts: int) -> dict[str, Any]:
    return {"cat": "Session", "ph": "X", "name": "model_run", "ts": ts, "dur": 50, "args": {}}


def test_a_kernel_has_its_mean_over_the_runs_that_count() -> None:
    trace = [
        {"cat": "Session", "ph": "X", "name": "session_initialization", "ts": 0, "dur": 9, "args": {}},
        *(node("a", "MatMul", 101, 7000), run(100)),
        *(node("a", "MatMul", 201, 2000), node("b", "Add", 230, 500), run(200)),
        *(node("a", "MatMul", 301, 4000), node("b", "Add", 330, 700), run(300)),
    ]
    assert kernels_of(trace, warmup=1) == (Kernel("a", "MatMul", 3.0), Kernel("b", "Add", 0.6))


def test_runs_that_do_not_count_leave_nothing() -> None:
    assert kernels_of([node("a", "MatMul", 101, 7000), run(100)], warmup=1) == ()


@pytest.mark.ort
def test_a_profile_of_a_model() -> None:
    feed = {"images": np.zeros((2, 3, 4, 4), np.float32)}
    kernels = profile(linear_classifier(), feed, runs=2, warmup=1)
    assert {"ReduceMean", "MatMul"} <= {kernel.operator for kernel in kernels}
    assert all(kernel.time_ms >= 0 for kernel in kernels)


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
    monkeypatch.setattr("exporter.runtimes.onnxruntime.profile.profile", lambda *_, **__: tuple(kernels))
    with pytest.raises(UserError, match=message):
        require_provider(Path("m.onnx"), (CUDA, CPU), FEED)


@pytest.mark.ort
def test_a_real_profile_names_the_provider() -> None:
    assert {each.provider for each in profile(linear_classifier(), FEED, runs=1)} == {CPU}


def test_the_cpu_is_not_profiled() -> None:
    require_provider(Path("none.onnx"), (CPU,), FEED)
