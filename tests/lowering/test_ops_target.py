"""The target for ONNX Runtime with our library of operators: few nodes, and the same decisions."""

from collections import Counter
from collections.abc import Callable

import onnx
import pytest

from exporter.evaluation.parity.check_model import check
from exporter.lowering.variants import selection_nodes, sliced_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_OPS
from tests.exhaustive import FIRST_FAMILIES, mark_further
from tests.lowering.models import FAMILIES, RATES, a_star, lowered, merging, star, tome
from tests.pruning.adaptive import varied_images

OTHERS: dict[str, Callable[[], PrunedViT]] = {
    "intra": lambda: star(scorer="intra"),
    "inter": lambda: star(scorer="inter"),
    "merging": merging,
    "tome": tome,
    "packed": lambda: a_star(layout="packed"),
    "shrinking": lambda: a_star(layout="shrinking"),
    "padded": lambda: a_star(layout="padded"),
}
# What each layer chooses by.
OURS = {
    **dict.fromkeys((*FAMILIES, "intra", "merging"), ("ChooseTopK",)),
    "packed": ("ChooseByMass", "PackSurvivors"),
    "shrinking": ("ChooseByMass",),
}


def pruned_by(kind: str) -> PrunedViT:
    return OTHERS[kind]() if kind in OTHERS else star(kind)


def ours(model: onnx.ModelProto) -> Counter[str]:
    """The operators of domain `star`."""
    return Counter(node.op_type for node in model.graph.node if node.domain)


@pytest.mark.parametrize("kind", [*mark_further(FAMILIES, FIRST_FAMILIES), *OTHERS])
def test_each_layer_chooses_in_one_node(kind: str) -> None:
    """Where attention scores patches; other scores, and the padded layout, stay in standard operators."""
    model = lowered(pruned_by(kind), ONNXRUNTIME_OPS)
    wanted = OURS.get(kind, ())
    assert ours(model) == dict.fromkeys(wanted, len(RATES))
    assert not model.functions
    assert ("star" in {each.domain for each in model.opset_import}) == bool(wanted)


@pytest.mark.parametrize("kind", ["vit", "packed"])
def test_a_layer_has_many_nodes_less(kind: str) -> None:
    pruned = pruned_by(kind)
    plain, short = (len(lowered(pruned, target).graph.node) for target in (ONNXRUNTIME, ONNXRUNTIME_OPS))
    assert plain - short >= 9 * len(RATES)


def test_its_selection_can_be_sliced_away() -> None:
    model = lowered(star(), ONNXRUNTIME_OPS)
    sliced = sliced_variant(model)
    assert not ours(sliced)
    chosen = {node.name for node in model.graph.node if node.domain}
    assert chosen <= selection_nodes(model, sliced)
    assert Counter(each.op_type for each in sliced.graph.node) == Counter(
        each.op_type for each in sliced_variant(lowered(star())).graph.node
    )


@pytest.mark.ort
@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("kind", [*mark_further(FAMILIES, FIRST_FAMILIES), *OTHERS])
def test_a_file_decides_and_computes_as_pytorch_does(kind: str) -> None:
    pruned = pruned_by(kind)
    report = check(pruned, lowered(pruned, ONNXRUNTIME_OPS), varied_images(pruned.vit, 16).numpy())
    assert report.passed, report.checks
