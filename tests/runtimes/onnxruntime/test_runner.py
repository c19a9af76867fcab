import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto

from exporter.errors import ArtefactError, MissingDependencyError, UserError
from exporter.lowering.quantize import FORMS, slots_of, to_pairs
from exporter.runtimes.base import TensorInfo
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from tests.lowering.graphs import graph_of, noise
from tests.tiny_onnx import KEEP, WEIGHT, linear_classifier, pruned_classifier

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.ort


def images(batch: int = 2) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((batch, 3, 4, 4)).astype(np.float32)


def test_it_tells_what_the_model_takes_and_returns() -> None:
    with OnnxRuntimeRunner(linear_classifier()) as runner:
        assert runner.inputs == (TensorInfo("images", ("batch", 3, 4, 4), "float32"),)
        assert runner.outputs == (TensorInfo("logits", ("batch", 8), "float32"),)


@pytest.mark.parametrize("batch", [1, 5])
def test_a_file_and_its_bytes_give_the_same_logits(tmp_path: Path, batch: int) -> None:
    model = linear_classifier()
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    with OnnxRuntimeRunner(path) as from_file, OnnxRuntimeRunner(model, threads=1) as from_bytes:
        logits = from_file.run({"images": images(batch)})["logits"]
        np.testing.assert_array_equal(logits, from_bytes.run({"images": images(batch)})["logits"])
    np.testing.assert_allclose(logits, images(batch).mean((2, 3)) @ WEIGHT, rtol=1e-5, atol=1e-6)


def test_pairs_of_fp8_are_not_fused() -> None:
    """ONNX Runtime 1.31 fuses them into an operator for INT8, and then refuses the graph."""
    fp8, weight = np.dtype(ml_dtypes.float8_e4m3fn), noise(6, 4)
    graph = graph_of("(float[b, 6] x) => (float[b, 4] y) { y = MatMul (x, w) }", {"w": weight}, opset=20)
    to_pairs(graph, slots_of(graph, graph.nodes, [], FORMS["fp8"]), {"x": (-4.0, 3.0)})
    model = gs.export_onnx(graph.toposort())
    model.ir_version = 10
    x = noise(3, 6)
    with OnnxRuntimeRunner(model.SerializeToString(), name="fp8") as runner:
        results = runner.run({"x": x})["y"]
    scales = np.float32(4.0 / 448), np.abs(weight).max(axis=0) / 448
    x8, w8 = (
        (each / scale).astype(fp8).astype(np.float32) * scale
        for each, scale in zip((x, weight), scales, strict=True)
    )
    np.testing.assert_allclose(results, x8 @ w8, atol=1e-5)


def test_uint8_images_go_in_as_they_are() -> None:
    with OnnxRuntimeRunner(linear_classifier(dtype=TensorProto.UINT8)) as runner:
        assert runner.run({"images": np.full((1, 3, 4, 4), 200, np.uint8)})["logits"].dtype == np.float32
        with pytest.raises(UserError, match=r"need uint8\[batch, 3, 4, 4\]"):
            runner.run({"images": images()})


def test_a_static_batch_takes_no_other() -> None:
    with OnnxRuntimeRunner(linear_classifier(batch=4)) as runner:
        runner.run({"images": images(4)})
        with pytest.raises(UserError, match=r"got float32\[2, 3, 4, 4\] \| need float32\[4, 3, 4, 4\]"):
            runner.run({"images": images(2)})


def test_metadata_travels_in_the_file() -> None:
    with OnnxRuntimeRunner(linear_classifier(metadata={"mean": "0.5", "target": "é"})) as runner:
        assert runner.metadata() == {"mean": "0.5", "target": "é"}


def test_two_runs_give_the_same_bits() -> None:
    with OnnxRuntimeRunner(pruned_classifier("tracing")) as runner:
        first, second = (runner.run({"images": images(8)}) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert [first[f"keep_{layer:02d}"].shape for layer in KEEP] == [(8, 10), (8, 6)]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_one_line_that_names_it(tmp_path: Path, share: float) -> None:
    model = linear_classifier()
    path = tmp_path / "cut.onnx"
    path.write_bytes(model[: int(len(model) * share)])
    with pytest.raises(ArtefactError) as caught, OnnxRuntimeRunner(path):
        pass
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_onnx_or_not_there_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.onnx"
    path.write_text("not a model")
    for wrong in (path, tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(ArtefactError), OnnxRuntimeRunner(wrong):
            pass
    with pytest.raises(ArtefactError, match="in memory"), OnnxRuntimeRunner(b"not a model"):
        pass


def test_a_model_without_outputs_is_refused_when_it_is_loaded() -> None:
    model = onnx.load_from_string(linear_classifier())
    del model.graph.output[:]
    with (
        pytest.raises(ArtefactError, match=r"^m \| got a graph without outputs "),
        OnnxRuntimeRunner(model.SerializeToString(), name="m"),
    ):
        pass


def test_an_index_outside_the_patches_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """And ONNX Runtime writes none of its own before it."""
    feed = {"images": images()} | {f"keep_{n:02d}": np.full((2, k), 99) for n, k in KEEP.items()}
    with OnnxRuntimeRunner(pruned_classifier("forced")) as runner, pytest.raises(ArtefactError) as caught:
        runner.run(feed)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_cuda_that_is_not_there_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    wanted = OnnxRuntimeRunner(linear_classifier(), providers=("CUDAExecutionProvider",))
    with pytest.raises(UserError, match="onnxruntime-gpu") as caught, wanted:
        pass
    assert "got ONNX Runtime with CPUExecutionProvider" in str(caught.value)
    assert not wanted.active


def test_a_provider_that_onnx_runtime_drops_silently_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, model: bytes, options: object, providers: list[str], **kwargs: int) -> None:
            super().__init__(model, options, providers=["CPUExecutionProvider"], **kwargs)

    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: both)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    with (
        pytest.raises(UserError, match="CUDAExecutionProvider"),
        OnnxRuntimeRunner(linear_classifier(), providers=both),
    ):
        pass


def test_without_onnx_runtime_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"star-export\[onnxruntime\]"), OnnxRuntimeRunner(b""):
        pass


def test_what_the_model_declares_is_unknown_outside_with() -> None:
    runner = OnnxRuntimeRunner(linear_classifier())
    for read in (lambda: runner.inputs, lambda: runner.outputs, runner.metadata):
        with pytest.raises(RuntimeError, match="inside `with`"):
            read()


def test_a_deployment_machine_needs_neither_torch_nor_onnx() -> None:
    rooms = (
        "runtimes.onnxruntime.runner",
        "evaluation.parity",
        "evaluation.accuracy",
        "workflows.folders.bench",
    )
    modules = ", ".join(f"exporter.{room}" for room in rooms)
    check = f"import sys, {modules}; sys.exit(bool({{'torch', 'onnx', 'onnxruntime'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.ort
@pytest.mark.parametrize("tf32", [False, True])
def test_tensorrt_s_provider_computes_fp32_in_fp32(monkeypatch: pytest.MonkeyPatch, tf32: bool) -> None:
    """No machine of the tests has the provider: it is refused after the environment is set."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "unset")
    runner = OnnxRuntimeRunner(b"", providers=("TensorrtExecutionProvider",), tf32=tf32)
    with pytest.raises(UserError, match="TensorrtExecutionProvider"):
        runner.__enter__()
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == ("unset" if tf32 else "0")
