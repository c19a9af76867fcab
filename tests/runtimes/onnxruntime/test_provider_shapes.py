"""The shapes that ONNX Runtime's TensorRT provider is told: one engine for every batch, of every variant."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from exporter.runtimes.onnxruntime.provider_shapes import shape_options
from exporter.tensor_names import variant_path
from exporter.vocabulary import Method
from tests.folders import write_folder


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
