"""The OpenVINO target: parity on the runtime itself, and the form that it is fast in."""

from collections import Counter

import pytest

from exporter.checking import check
from exporter.lowering.pipeline import lower
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runners.choice import why_not
from exporter.targets import OPENVINO
from tests.lowering.test_fuse_attention import pruned_of
from tests.pruning.test_adaptive import make_adaptive
from tests.vits import make_vit, random_images

FAMILIES = ("vit", "qk norm", "eva02, joined, rotary", "lvvit")


@pytest.fixture(autouse=True)
def openvino() -> None:
    if reason := why_not(OPENVINO):
        pytest.skip(reason)


@pytest.mark.parametrize("method", ["star", "a-star"])
@pytest.mark.parametrize("family", FAMILIES)
def test_openvino_computes_what_pytorch_does(family: str, method: str) -> None:
    """Under a-STAR it drops the last count from the forced twin's inputs, where no head looks at patches."""
    vit = make_vit(family)
    pruned: PrunedViT = pruned_of(vit) if method == "star" else make_adaptive(vit, "padded")
    images = random_images(vit, 16).numpy()
    report = check(pruned, lower(pruned, OPENVINO), images, target=OPENVINO, threads=1)
    assert report.passed, report.checks
    assert report.layers


def test_rows_are_gathered_over_the_whole_batch() -> None:
    operators = Counter(node.op_type for node in lower(pruned_of(make_vit()), OPENVINO).graph.node)
    assert "GatherND" not in operators
    assert operators["Attention"] == 4
