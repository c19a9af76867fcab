"""ONNX Runtime's providers: those of this machine, and the options of each."""

import pytest

from exporter.errors import MissingDependencyError, UserError
from exporter.runtimes.onnxruntime.providers import check_available, check_providers, with_options

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
