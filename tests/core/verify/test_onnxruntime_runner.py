"""ONNX Runtime: models in it, its providers and its messages; kernels, their times, and who ran them."""

import os
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper

from exporter.core.base.errors import ArtefactError, MissingDependencyError, UserError
from exporter.core.base.tensor_names import instrumented_path
from exporter.core.base.vocabulary import InputKind, Method
from exporter.core.lower.quantize import FORMS, slots_of, to_pairs
from exporter.core.verify.onnxruntime_runner import (
    Kernel,
    OnnxRuntimeRunner,
    kernels_of,
    message_of,
    profile,
    refusal,
    require_provider,
    shape_options,
    strays,
    with_options,
)
from exporter.core.verify.runner import TensorInfo
from tests.core.lower.graphs import graph_of
from tests.core.lower.graphs import noise as drawn
from tests.folders import write_folder
from tests.tiny_onnx import (
    KEEP,
    SIDE,
    linear_classifier,
    noise,
    pruned_classifier,
)

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.ort

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
FEED = {"images": np.zeros((1, 3, SIDE, SIDE), np.float32)}


@pytest.mark.parametrize(
    ("own", "batch", "dtype"),
    [
        ({}, "batch", "float32"),
        ({"kind": InputKind.UINT8}, "batch", "uint8"),
        ({"batch": 4}, 4, "float32"),
    ],
)
def test_it_tells_what_the_model_takes_and_returns(
    own: dict[str, Any], batch: int | str, dtype: str
) -> None:
    with OnnxRuntimeRunner(linear_classifier(**own)) as runner:
        assert runner.inputs == (TensorInfo("images", (batch, 3, 4, 4), dtype),)
        assert runner.outputs == (TensorInfo("logits", (batch, 8), "float32"),)
        assert runner.run({"images": noise(4).astype(dtype)})["logits"].shape == (4, 8)


def test_pairs_of_fp8_are_not_fused() -> None:
    """ONNX Runtime 1.31 fuses them into an operator for INT8, and then refuses the graph."""
    fp8, weight = np.dtype(ml_dtypes.float8_e4m3fn), drawn(6, 4)
    graph = graph_of(
        "(float[b, 6] x) => (float[b, 4] y) { y = MatMul (x, w) }",
        {"w": weight},
        opset=20,
    )
    to_pairs(graph, slots_of(graph, graph.nodes, [], FORMS["fp8"]), {"x": (-4.0, 3.0)})
    model = gs.export_onnx(graph.toposort())
    model.ir_version = 10
    x = drawn(3, 6)
    with OnnxRuntimeRunner(model.SerializeToString(), name="fp8") as runner:
        results = runner.run({"x": x})["y"]
    scales = np.float32(4.0 / 448), np.abs(weight).max(axis=0) / 448
    x8, w8 = (
        (each / scale).astype(fp8).astype(np.float32) * scale
        for each, scale in zip((x, weight), scales, strict=True)
    )
    np.testing.assert_allclose(results, x8 @ w8, atol=1e-5)


def test_what_is_no_whole_onnx_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    model, path = linear_classifier(), tmp_path / "wrong.onnx"
    for content in (
        b"not a model",
        *(model[: int(len(model) * share)] for share in (0.0, 0.3, 0.99)),
    ):
        path.write_bytes(content)
        with pytest.raises(ArtefactError) as caught, OnnxRuntimeRunner(path):
            pass
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    for wrong in (tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(ArtefactError), OnnxRuntimeRunner(wrong):
            pass
    with (
        pytest.raises(ArtefactError, match="in memory"),
        OnnxRuntimeRunner(b"not a model"),
    ):
        pass


def test_a_model_without_outputs_is_refused_when_it_is_loaded() -> None:
    model = onnx.load_from_string(linear_classifier())
    del model.graph.output[:]
    with (
        pytest.raises(ArtefactError, match=r"^m \| got a graph without outputs "),
        OnnxRuntimeRunner(model.SerializeToString(), name="m"),
    ):
        pass


def test_an_index_outside_the_patches_is_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And ONNX Runtime writes none of its own before it."""
    feed = {"images": noise()} | {
        f"keep_{n:02d}": np.full((2, k), 99) for n, k in KEEP.items()
    }
    with (
        OnnxRuntimeRunner(pruned_classifier("forced")) as runner,
        pytest.raises(ArtefactError) as caught,
    ):
        runner.run(feed)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_cuda_that_is_not_there_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"]
    )
    wanted = OnnxRuntimeRunner(
        linear_classifier(), providers=("CUDAExecutionProvider",)
    )
    with pytest.raises(UserError, match="onnxruntime-gpu") as caught, wanted:
        pass
    assert "got ONNX Runtime with CPUExecutionProvider" in str(caught.value)
    assert not wanted.active


def test_a_provider_that_onnx_runtime_drops_silently_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(
            self, model: bytes, options: object, providers: list[str], **kwargs: int
        ) -> None:
            super().__init__(
                model, options, providers=["CPUExecutionProvider"], **kwargs
            )

    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    with (
        pytest.raises(UserError, match="CUDAExecutionProvider"),
        OnnxRuntimeRunner(linear_classifier(), providers=both),
    ):
        pass


def test_without_onnx_runtime_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with (
        pytest.raises(MissingDependencyError, match=r"star-export\[onnxruntime\]"),
        OnnxRuntimeRunner(b""),
    ):
        pass


def test_what_the_model_declares_is_unknown_outside_with() -> None:
    runner = OnnxRuntimeRunner(linear_classifier())
    for read in (lambda: runner.inputs, lambda: runner.outputs):
        with pytest.raises(RuntimeError, match="inside `with`"):
            read()


def test_tensorrt_s_provider_computes_fp32_in_fp32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No machine of the tests has the provider: it is refused after the environment is set."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "unset")
    runner = OnnxRuntimeRunner(b"", providers=("TensorrtExecutionProvider",))
    with pytest.raises(UserError, match="TensorrtExecutionProvider"):
        runner.__enter__()
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"


def test_a_runtime_that_is_too_old_is_one_line() -> None:
    """The words are those of ONNX Runtime 1.20.1."""
    told = "Load model from vit.onnx failed: Opset 23 is under development and support for this is limited."
    expected = (
        "vit.onnx | got opset 23 for ONNX Runtime 1.20.1 | need ONNX Runtime >= 1.23"
        " | or an export with --target onnxruntime-opset17-fp32"
    )
    assert str(refusal("vit.onnx", told, "1.20.1")) == expected
    assert "an ONNX model that loads" in str(
        refusal("vit.onnx", told.replace("23", "99"), "1.31.1")
    )


def test_a_reason_has_no_codes_and_no_line_breaks() -> None:
    told = RuntimeError("[ONNXRuntimeError] : 1 : FAIL : no such\n operator : Foo")
    assert message_of(told) == "FAIL : no such operator : Foo"


def test_fp32_is_fp32_on_cuda_and_tensorrt_s_provider_gets_its_options() -> None:
    shapes = {"trt_profile_min_shapes": "images:1x3x4x4"}
    tensorrt, cuda = with_options(("TensorrtExecutionProvider", CUDA), shapes)
    assert tensorrt == ("TensorrtExecutionProvider", shapes)
    assert cuda == (CUDA, {"use_tf32": "0"})
    assert with_options(("TensorrtExecutionProvider",)) == ["TensorrtExecutionProvider"]


@pytest.mark.parametrize("method", [Method.STAR, Method.A_STAR])
def test_the_decisions_of_the_forced_model_have_shapes_too(
    tmp_path: Path, method: Method
) -> None:
    """The provider takes no shapes unless it has those of every input; a-STAR's survivors are 1 to STAR's count."""
    forced = instrumented_path(write_folder(tmp_path, method=method).pruned, "forced")
    least, further = ("10", "6"), ""
    if method == Method.A_STAR:
        least, further = ("1", "1"), ",count_02:{batch},count_04:{batch}"
        _with_counts(forced)
    for end, batch, sizes in (
        ("min", 1, least),
        ("opt", 32, ("10", "6")),
        ("max", 256, ("10", "6")),
    ):
        keeps = ",".join(
            f"keep_{n}:{batch}x{k}" for n, k in zip(("02", "04"), sizes, strict=True)
        )
        told = f"images:{batch}x3x4x4,{keeps}{further.format(batch=batch)}"
        assert shape_options(forced)[f"trt_profile_{end}_shapes"] == told


def _with_counts(path: Path) -> None:
    """Make of STAR's variant what lowering makes of a-STAR: survivors of any number, and their number."""
    model = onnx.load(path)
    for keep in model.graph.input[1:]:
        keep.type.tensor_type.shape.dim[1].dim_param = keep.name.replace("keep", "kept")
        count = keep.name.replace("keep", "count")
        model.graph.input.append(
            helper.make_tensor_value_info(count, TensorProto.INT64, ["batch"])
        )
    onnx.save(model, path)


def event(category: str, name: str, ts: int, dur: int, **args: str) -> dict[str, Any]:
    """As ONNX Runtime's profiler writes it."""
    times = {"ts": ts, "dur": dur}
    return {"cat": category, "ph": "X", "name": name, **times, "args": args}


def node(name: str, operator: str, ts: int, dur: int) -> dict[str, Any]:
    return event("Node", f"{name}_kernel_time", ts, dur, op_name=operator)


def run(ts: int) -> dict[str, Any]:
    return event("Session", "model_run", ts, 50)


def test_a_kernel_has_its_mean_over_the_runs_that_count() -> None:
    trace = [
        event("Session", "session_initialization", 0, 9),
        *(node("a", "MatMul", 101, 7000), run(100)),
        *(node("a", "MatMul", 201, 2000), node("b", "Add", 230, 500), run(200)),
        *(node("a", "MatMul", 301, 4000), node("b", "Add", 330, 700), run(300)),
    ]
    assert kernels_of(trace, warmup=1) == (
        Kernel("a", "MatMul", 3.0),
        Kernel("b", "Add", 0.6),
    )
    assert kernels_of(trace, warmup=3) == ()


def test_a_profile_of_a_model() -> None:
    kernels = profile(linear_classifier(), FEED, runs=2, warmup=1)
    assert {"ReduceMean", "MatMul"} <= {kernel.operator for kernel in kernels}
    assert all(kernel.time_ms >= 0 and kernel.provider == CPU for kernel in kernels)


def kernel(operator: str, provider: str) -> Kernel:
    return Kernel(operator.lower(), operator, 0.1, provider)


@pytest.mark.parametrize(
    ("kernels", "message"),
    [
        (
            [
                kernel("MatMul", CUDA),
                kernel("Attention", CPU),
                kernel("Attention", CPU),
            ],
            "got 2 Attention on CPU",
        ),
        ([kernel("Shape", CPU)], "no kernel of it"),
        ([], "no kernel of it"),
    ],
)
def test_a_silent_fall_back_is_refused(
    kernels: list[Kernel], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "exporter.core.verify.onnxruntime_runner.profile",
        lambda *_, **__: tuple(kernels),
    )
    with pytest.raises(UserError, match=message):
        require_provider(Path("m.onnx"), (CUDA, CPU), FEED)
    # Sizes may stay on the CPU.
    assert strays([kernel("Shape", CPU), kernel("MatMul", CUDA)], CUDA) == {}


def test_the_cpu_is_not_profiled() -> None:
    require_provider(Path("none.onnx"), (CPU,), FEED)
