"""ONNX Runtime's profile, read back."""

from typing import Any

import numpy as np
import pytest

from exporter.runtimes.onnxruntime.profile import Kernel, kernels_of, profile
from tests.tiny_onnx import linear_classifier


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
