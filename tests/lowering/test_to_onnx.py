"""torch's export: choices as single nodes, a batch of any size, names that passes can find."""

import onnx
import pytest

from exporter.lowering.markers import DOMAIN
from tests.lowering.models import RATES, a_star, dense, exported, star


@pytest.mark.parametrize("opset", [20, 23])
def test_choices_are_single_nodes_of_our_domain(opset: int) -> None:
    model = exported(star(), opset)
    assert {each.domain: each.version for each in model.opset_import}[""] == opset
    own = [node.op_type for node in model.graph.node if node.domain == DOMAIN]
    assert own.count("KeepTopK") == own.count("TakeTokens") == own.count("ClassRow") == len(RATES)
    assert "TopK" not in {node.op_type for node in model.graph.node}


def test_a_dense_model_chooses_nothing() -> None:
    own = {node.op_type for node in exported(dense(), 23).graph.node if node.domain == DOMAIN}
    assert own == {"Attention"}


def test_the_batch_stays_open() -> None:
    for model in (exported(star(), 23), exported(a_star(), 23)):
        for value in (*model.graph.input, *model.graph.output):
            first = value.type.tensor_type.shape.dim[0]
            assert first.dim_param and not first.dim_value


def test_a_copy_for_whoever_asks() -> None:
    model = exported(star(), 23)
    del model.graph.node[:]
    assert isinstance(model, onnx.ModelProto)
    assert exported(star(), 23).graph.node
