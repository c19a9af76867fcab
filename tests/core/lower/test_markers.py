"""The markers of torch's export, and the operators that become one standard operator."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from exporter.core.lower.markers import STANDARD, TRANSLATIONS
from exporter.core.lower.pipeline import translate
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner


class Halves(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.to(torch.float16)


class Rows(nn.Module):
    def forward(self, packed: Tensor) -> Tensor:
        return torch.ops.star.take_rows(packed, torch.tensor([[2, 0], [1, 1]]))


class Columns(nn.Module):
    def forward(self, packed: Tensor) -> Tensor:
        return packed.index_select(1, torch.tensor([2, 0, 2]))


def batch_norm() -> nn.Module:
    norm = nn.BatchNorm2d(3).eval()
    for parameter in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(parameter)  # type: ignore[arg-type]
    return norm


# The operators that only a program which is not decomposed has.
CAPTURED = (torch.ops.aten.batch_norm.default, torch.ops.aten.to.dtype)

MODULES = {
    "BatchNormalization": (batch_norm, (2, 3, 4, 4)),
    "Gelu": (nn.GELU, (2, 5)),
    "Gelu, tanh": (lambda: nn.GELU(approximate="tanh"), (2, 5)),
    "Gather": (Rows, (3, 4)),
    "Gather, of one axis": (Columns, (2, 3, 4)),
    "Cast": (Halves, (2, 5)),
}


@pytest.mark.ort
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("case", MODULES)
def test_it_is_one_node_that_computes_the_same(case: str, *, whole: bool) -> None:
    torch.manual_seed(0)
    make, shape = MODULES[case]
    module, example = make().eval(), torch.randn(*shape)

    def capture() -> ExportedProgram:
        return torch.export.export(module, (example,), strict=False)

    table = (
        dict(STANDARD)
        if whole
        else {op: to for op, to in STANDARD.items() if op not in CAPTURED}
    )
    model = translate(capture, table, 20, inputs=["images"], outputs=["logits"])
    (node,) = (each for each in model.graph.node if each.op_type != "Constant")
    assert case.startswith(node.op_type)
    with OnnxRuntimeRunner(model.SerializeToString(), name=case) as runner:
        found = runner.run({"images": example.numpy()})["logits"]
    with torch.inference_mode():
        assert np.abs(found - module(example).numpy()).max() < 1e-6


def test_every_standard_operator_has_a_case() -> None:
    # GELU has two for its one operator, batch norm one for its two, captured and decomposed.
    assert len(STANDARD) == len(MODULES)


@pytest.mark.parametrize(
    "option", [{"dropout_p": 0.1}, {"is_causal": True}, {"enable_gqa": True}]
)
def test_attention_of_another_kind_is_not_lowered(option: dict[str, Any]) -> None:
    attention = TRANSLATIONS[torch.ops.aten.scaled_dot_product_attention.default]
    with pytest.raises(
        NotImplementedError, match="dropout, a causal mask or grouped queries"
    ):
        attention(None, None, None, **option)
