"""The whole lowering."""

from pathlib import Path

import onnx
import pytest

from exporter.core.base.errors import ModelError
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_INT8,
    TENSORRT,
)
from exporter.core.lower import pipeline
from exporter.core.lower.pipeline import lower, lower_each
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything
from exporter.models.registry import describe
from exporter.models.request import ModelRequest
from tests.core.lower.models import (
    biased_vit,
    exported,
    lowered,
    pruned_of,
    star,
)


def test_every_size_but_the_batch_is_static() -> None:
    model = onnx.shape_inference.infer_shapes(lowered(star()), data_prop=True)
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        dynamic = [
            d.dim_param
            for d in value.type.tensor_type.shape.dim
            if not d.HasField("dim_value")
        ]
        # Linear layers see the tokens of all images as one matrix.
        assert len(dynamic) <= 1 and all(
            size.split("*")[0] == "batch" for size in dynamic
        ), value.name


@pytest.mark.usefixtures("exported_anew")
def test_the_same_model_gives_the_same_bytes_without_a_path(tmp_path: Path) -> None:
    save_onnx(lower(pruned_of(biased_vit()), ONNXRUNTIME), tmp_path / "a.onnx")
    save_onnx(lowered(star()), tmp_path / "b.onnx")
    content = (tmp_path / "a.onnx").read_bytes()
    assert content == (tmp_path / "b.onnx").read_bytes()
    assert b".py" not in content
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "b.onnx"]


def test_targets_of_one_opset_share_an_export_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = (ONNXRUNTIME, TENSORRT, ONNXRUNTIME_FP16, ONNXRUNTIME)
    opsets = list[int]()

    def to_onnx(pruned: PrunedViT, opset: int) -> onnx.ModelProto:
        opsets.append(opset)
        return exported(pruned, opset)

    monkeypatch.setattr(pipeline, "to_onnx", to_onnx)
    models = list(lower_each(star(), targets))
    assert opsets == [23, 20]
    assert models == [lowered(star(), target) for target in targets]


def test_a_model_that_one_file_cannot_hold_is_not_quantized_which_is_said_before_the_export() -> (
    None
):
    vit = describe(ModelRequest("vit_giant_patch14_dinov2", num_classes=10))
    with pytest.raises(
        ModelError, match=r"4\.\d GB of weights for .*-int8 \| need less than 2 GB"
    ):
        lower(PrunedViT(vit, keep_everything(vit.spec)), ONNXRUNTIME_INT8)
