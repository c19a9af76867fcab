"""A failed comparison of a file with 8-bit weights names a CPU without VNNI, and no other does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from exporter.evaluation import benchmark
from exporter.evaluation.parity.checks import ParityReport, explain
from exporter.evaluation.parity.comparison import with_saturation
from exporter.evaluation.parity.reference import check
from exporter.targets import ONNXRUNTIME_INT8, OPENVINO_INT8, TENSORRT_INT8, Target
from tests.evaluation.parity.models import compared, images, pruned_family
from tests.lowering.models import lowered, star
from tests.tiny_onnx import linear_classifier
from tests.vits import random_images


@pytest.fixture
def without_vnni(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t: avx2 fma\n")
    monkeypatch.setattr(benchmark, "CPUINFO", cpuinfo)
    return cpuinfo


def failed() -> ParityReport:
    return replace(compared(pruned_family(), images(4)), passed=False)


def with_weights(largest: int) -> onnx.ModelProto:
    """A model with such a weight."""
    model = onnx.load_from_string(linear_classifier())
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array([-largest], np.int8), "w")
    )
    return model


@pytest.mark.parametrize(
    "target", [ONNXRUNTIME_INT8, OPENVINO_INT8], ids=lambda target: target.name
)
def test_the_cause_is_named_in_the_first_line(without_vnni: Path, target: Target) -> None:
    report = with_saturation(failed(), with_weights(65), target, target.runtime)
    assert explain(report)[0].startswith(
        "FAILED: shipped against reference, 4 images: this CPU has no VNNI"
    )
    assert explain(report)[0].endswith("export it again")
    without_vnni.write_text("flags\t: avx2 avx_vnni\n")
    assert with_saturation(failed(), with_weights(65), target, target.runtime) == failed()


@pytest.mark.parametrize(
    ("passed", "largest", "target", "runtime"),
    [
        (True, 127, ONNXRUNTIME_INT8, "onnxruntime"),
        (False, 64, ONNXRUNTIME_INT8, "onnxruntime"),
        (False, 127, ONNXRUNTIME_INT8, "onnxruntime-cuda"),
        (False, 127, TENSORRT_INT8, "onnxruntime"),
    ],
)
@pytest.mark.usefixtures("without_vnni")
def test_it_is_not_named_where_nothing_saturates(
    passed: bool, largest: int, target: Target, runtime: str
) -> None:
    report = replace(failed(), passed=passed)
    assert with_saturation(report, with_weights(largest), target, runtime) == report


@pytest.mark.ort
@pytest.mark.usefixtures("without_vnni")
def test_check_names_it_for_an_earlier_file() -> None:
    pruned = star()
    model = lowered(pruned, ONNXRUNTIME_INT8)
    for tensor in model.graph.initializer:
        if (
            tensor.data_type == onnx.TensorProto.INT8
        ):  # all integers twice, so that some have 8 bits: wrong on any CPU
            twice = (
                (2 * onnx.numpy_helper.to_array(tensor).astype(int))
                .clip(-127, 127)
                .astype(np.int8)
            )
            tensor.CopyFrom(onnx.numpy_helper.from_array(twice, tensor.name))
    assert "no VNNI" in check(pruned, model, random_images(pruned.vit, 8).numpy()).cause
