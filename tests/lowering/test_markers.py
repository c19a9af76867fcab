"""The markers of torch's export, and the operators that become one standard operator."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from onnx.defs import OpSchema
from onnxscript import evaluator, values
from torch import Tensor, nn
from torch.export import ExportedProgram

from exporter.lowering.markers import STANDARD, TRANSLATIONS
from exporter.lowering.pipeline import translate
from exporter.ops.onnx_functions import DOMAIN
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner


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

    table = dict(STANDARD) if whole else {op: to for op, to in STANDARD.items() if op not in CAPTURED}
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


class Call(NamedTuple):
    """An operator that a translation wrote."""

    domain: str
    operator: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    schema: OpSchema


class Writer:
    """Stands for the exporter: gives the one call of a translation back."""

    def eval_op(self, op: values.Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        assert op.op_schema is not None
        return Call(op.opset.domain, op.name, tuple(args), dict(kwargs), op.op_schema)

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        raise AssertionError(f"a function {function.name} in the place of an operator")


def written(operator: Callable[..., Any], *arguments: Any, **options: Any) -> Call:
    with evaluator.default_as(Writer()):
        call = TRANSLATIONS[operator](*arguments, **options)
    assert isinstance(call, Call)
    return call


SDPA = torch.ops.aten.scaled_dot_product_attention.default
QUERY = SimpleNamespace(shape=("batch", 3, "tokens", 16))

MARKED = [operator for operator in TRANSLATIONS if operator not in STANDARD and operator != SDPA]


@pytest.mark.parametrize("whole", [True, False], ids=["every input", "no optional one"])
@pytest.mark.parametrize("operator", MARKED, ids=str)
def test_an_operator_is_one_node_of_our_domain(operator: Any, whole: bool) -> None:
    """Its tensors are the inputs, without a missing one; its numbers are attributes; it has as many results."""
    arguments: list[Any] = []
    for place, each in enumerate(operator._schema.arguments):
        kind = str(each.type)
        optional = None if kind == "Optional[Tensor]" and not whole else each.name
        arguments.append({"int": place, "float": place + 0.5}.get(kind, optional))
    call = written(operator, *arguments)
    assert call.domain == DOMAIN
    assert call.operator == "".join(word.title() for word in operator._opname.split("_"))
    assert list(call.inputs) == [each for each in arguments if isinstance(each, str)]
    numbers = [each for each in arguments if isinstance(each, int | float)]
    written_numbers = [each for each in call.attributes.values() if not isinstance(each, str)]
    assert [each[0] if isinstance(each, list) else each for each in written_numbers] == numbers
    assert len(call.schema.outputs) == len(operator._schema.returns)


def test_a_mask_is_the_fourth_input_of_attention() -> None:
    assert written(SDPA, QUERY, "k", "v").inputs == (QUERY, "k", "v")
    assert written(SDPA, QUERY, "k", "v", "m").inputs == (QUERY, "k", "v", "m")
    assert written(SDPA, QUERY, "k", "v").attributes == {"scale": 0.25}


def test_attention_takes_the_scale_it_is_given() -> None:
    assert written(SDPA, QUERY, "k", "v", scale=2.0).attributes == {"scale": 2.0}


@pytest.mark.parametrize("option", [{"dropout_p": 0.1}, {"is_causal": True}, {"enable_gqa": True}])
def test_attention_of_another_kind_is_not_lowered(option: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match="dropout, a causal mask or grouped queries"):
        written(SDPA, QUERY, "k", "v", **option)
