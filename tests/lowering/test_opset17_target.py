"""The target for ONNX Runtimes without opset 23: STAR, a-STAR and merging in opset 17."""

from collections.abc import Callable

import pytest

from exporter.evaluation.parity.reference import check
from exporter.pruning.pruned_vit import PrunedViT
from exporter.targets import ONNXRUNTIME_OPSET17
from tests.exhaustive import also
from tests.lowering.models import a_star, lowered, merging, star, tome
from tests.vits import varied_images

MADE: dict[str, Callable[[], PrunedViT]] = {
    "star": star,
    "merging": merging,
    "tome": tome,
    "packed": lambda: a_star(layout="packed"),
    "padded": lambda: a_star(layout="padded"),
    "shrinking": lambda: a_star(layout="shrinking"),
}


@pytest.mark.ort
@pytest.mark.parametrize("kind", ["star", "tome", "packed", *map(also, ("merging", "padded", "shrinking"))])
def test_a_file_of_opset_17_decides_and_computes_as_pytorch_does(kind: str) -> None:
    pruned = MADE[kind]()
    model = lowered(pruned, ONNXRUNTIME_OPSET17)
    assert {each.domain: each.version for each in model.opset_import}[""] == 17
    assert all(each.version == 17 for body in model.functions for each in body.opset_import)
    assert model.ir_version == 8
    assert "Attention" not in {node.op_type for node in model.graph.node}
    report = check(pruned, model, varied_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks
