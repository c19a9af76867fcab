"""ONNX Runtime's providers, their options, and its messages."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from exporter.errors import MissingDependencyError, UserError
from exporter.runtimes.onnxruntime.runner import (
    check_available,
    check_providers,
    message_of,
    refusal,
    shape_options,
    with_options,
)
from exporter.tensor_names import variant_path
from exporter.vocabulary import Method
from tests.folders import write_folder


def test_a_runtime_that_is_too_old_is_one_line() -> None:
    """The words are those of ONNX Runtime 1.20.1."""
    told = "Load model from vit.onnx failed: Opset 23 is under development and support for this is limited."
    expected = (
        "vit.onnx | got opset 23 for ONNX Runtime 1.20.1 | need ONNX Runtime >= 1.23"
        " | or an export with --target onnxruntime-opset17-fp32"
    )
    assert str(refusal("vit.onnx", told, "1.20.1")) == expected
    assert "an ONNX model that loads" in str(refusal("vit.onnx", told.replace("23", "99"), "1.31.1"))


def test_a_reason_has_no_codes_and_no_line_breaks() -> None:
    told = RuntimeError("[ONNXRuntimeError] : 1 : FAIL : no such\n operator : Foo")
    assert message_of(told) == "FAIL : no such operator : Foo"


CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def test_one_that_is_missing_is_named_with_the_package_that_has_it() -> None:
    check_available((CPU,), (CUDA, CPU))
    with pytest.raises(UserError, match=rf"{CUDA} \| got ONNX Runtime with {CPU} .*onnxruntime-gpu"):
        check_available((CPU, CUDA), (CPU,))


@pytest.mark.ort
def test_the_cpu_is_always_there() -> None:
    check_providers((CPU,))


def test_without_onnx_runtime_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(MissingDependencyError, match="onnxruntime"):
        check_providers((CPU,))


def test_fp32_is_fp32_on_cuda_unless_tf32_is_asked_for() -> None:
    providers = ("CUDAExecutionProvider", "CPUExecutionProvider")
    assert with_options(providers, tf32=False) == [
        ("CUDAExecutionProvider", {"use_tf32": "0"}),
        "CPUExecutionProvider",
    ]
    assert with_options(providers, tf32=True)[0] == ("CUDAExecutionProvider", {"use_tf32": "1"})


def test_tensorrt_s_provider_gets_its_options() -> None:
    shapes = {"trt_profile_min_shapes": "images:1x3x4x4"}
    tensorrt, cuda = with_options(("TensorrtExecutionProvider", "CUDAExecutionProvider"), False, shapes)
    assert tensorrt == ("TensorrtExecutionProvider", shapes)
    assert cuda == ("CUDAExecutionProvider", {"use_tf32": "0"})
    assert with_options(("TensorrtExecutionProvider",), False) == ["TensorrtExecutionProvider"]


def test_one_engine_for_all_batches(tmp_path: Path) -> None:
    assert shape_options(write_folder(tmp_path).dense) == {
        "trt_profile_min_shapes": "images:1x3x4x4",
        "trt_profile_opt_shapes": "images:32x3x4x4",
        "trt_profile_max_shapes": "images:256x3x4x4",
    }


@pytest.mark.parametrize("method", [Method.STAR, Method.A_STAR])
def test_the_decisions_of_the_forced_variant_have_shapes_too(tmp_path: Path, method: Method) -> None:
    """The provider takes no shapes unless it has those of every input; a-STAR's survivors are 1 to STAR's count."""
    forced = variant_path(write_folder(tmp_path, method=method).pruned, "forced")
    least, further = ("10", "6"), ""
    if method == Method.A_STAR:
        least, further = ("1", "1"), ",count_02:{batch},count_04:{batch}"
        _with_counts(forced)
    for end, batch, sizes in (("min", 1, least), ("opt", 32, ("10", "6")), ("max", 256, ("10", "6"))):
        keeps = ",".join(f"keep_{n}:{batch}x{k}" for n, k in zip(("02", "04"), sizes, strict=True))
        told = f"images:{batch}x3x4x4,{keeps}{further.format(batch=batch)}"
        assert shape_options(forced)[f"trt_profile_{end}_shapes"] == told


def _with_counts(path: Path) -> None:
    """Make of STAR's variant what lowering makes of a-STAR: survivors of any number, and their number."""
    model = onnx.load(path)
    for keep in model.graph.input[1:]:
        keep.type.tensor_type.shape.dim[1].dim_param = keep.name.replace("keep", "kept")
        count = keep.name.replace("keep", "count")
        model.graph.input.append(helper.make_tensor_value_info(count, TensorProto.INT64, ["batch"]))
    onnx.save(model, path)
