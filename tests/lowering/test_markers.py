"""The markers of torch's export, and the operators that become one standard operator."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from onnx.defs import OpSchema
from onnxscript import evaluator, values
from torch import Tensor, nn
from torch.export import ExportedProgram

from exporter.lowering import markers
from exporter.lowering.export import translate
from exporter.lowering.markers import DOMAIN, STANDARD, TRANSLATIONS
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


STAR = torch.ops.star
SDPA = torch.ops.aten.scaled_dot_product_attention.default
QUERY = SimpleNamespace(shape=("batch", 3, "tokens", 16))

# An operator of torch with its arguments, and the marker, its inputs and its attributes.
CASES: dict[str, tuple[Any, tuple[Any, ...], str, tuple[Any, ...], dict[str, Any]]] = {
    "class row": (
        STAR.class_row.default,
        ("q", "k", 0.5, 2),
        markers.CLASS_ROW,
        ("q", "k"),
        {"scale": 0.5, "num_class_tokens": 2},
    ),
    "attention received": (
        STAR.received.default,
        ("q", "k", None, 0.5, 2),
        markers.RECEIVED,
        ("q", "k"),
        {"scale": 0.5, "stride": 2},
    ),
    "attention received, biased": (
        STAR.received.default,
        ("q", "k", "z", 0.5, 2),
        markers.RECEIVED,
        ("q", "k", "z"),
        {"scale": 0.5, "stride": 2},
    ),
    "dissimilarity": (
        STAR.dissimilarity.default,
        ("k", None, 2),
        markers.DISSIMILARITY,
        ("k",),
        {"num_prefix_tokens": 2},
    ),
    "dissimilarity of what is live": (
        STAR.dissimilarity.default,
        ("k", "m", 2),
        markers.DISSIMILARITY,
        ("k", "m"),
        {"num_prefix_tokens": 2},
    ),
    "top-k": (STAR.keep_top_k.default, ("s", 8), markers.KEEP_TOP_K, ("s",), {"k": 8}),
    "gather": (
        STAR.take_tokens.default,
        ("x", "i", 2),
        markers.TAKE_TOKENS,
        ("x", "i"),
        {"num_prefix_tokens": 2},
    ),
    "who joins whom": (
        STAR.merge_into.default,
        ("x", "i", 2),
        markers.MERGE_INTO,
        ("x", "i"),
        {"num_prefix_tokens": 2},
    ),
    "mean": (
        STAR.merge_tokens.default,
        ("x", "j", None, 4, 2),
        markers.MERGE_TOKENS,
        ("x", "j"),
        {"kept": 4, "num_prefix_tokens": 2},
    ),
    "mean by size": (
        STAR.merge_tokens.default,
        ("x", "j", "z", 4, 2),
        markers.MERGE_TOKENS,
        ("x", "j", "z"),
        {"kept": 4, "num_prefix_tokens": 2},
    ),
    "pairs": (
        STAR.pair_tokens.default,
        ("k", 8, 2),
        markers.PAIR_TOKENS,
        ("k",),
        {"kept": 8, "num_prefix_tokens": 2},
    ),
    "packing": (
        STAR.pack_tokens.default,
        ("r", "i", "n", 2),
        markers.PACK_TOKENS,
        ("r", "i", "n"),
        {"num_prefix_tokens": 2},
    ),
    "retention": (
        STAR.cdf_retain.default,
        ("s", "n", 0.7),
        markers.CDF_RETAIN,
        ("s", "n"),
        {"mass": 0.7, "plugin_version": "1", "plugin_namespace": "star"},
    ),
    "padded retention": (
        STAR.cdf_retain_padded.default,
        ("s", "n", 0.7, 9),
        markers.CDF_RETAIN_PADDED,
        ("s", "n"),
        {"mass": 0.7, "width": [9]},
    ),
    "attention": (SDPA, (QUERY, "k", "v"), markers.ATTENTION, (QUERY, "k", "v"), {"scale": 0.25}),
    "masked attention": (
        SDPA,
        (QUERY, "k", "v", "m"),
        markers.ATTENTION,
        (QUERY, "k", "v", "m"),
        {"scale": 0.25},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operator_is_one_node_of_our_domain(case: str) -> None:
    operator, arguments, name, inputs, attributes = CASES[case]
    call = written(operator, *arguments)
    assert (call.domain, call.operator) == (DOMAIN, name)
    assert (call.inputs, call.attributes) == (inputs, attributes)


@pytest.mark.parametrize("case", CASES)
def test_a_node_is_as_its_schema_says(case: str) -> None:
    """As torch's operator gives so many results; every attribute is declared, with the kind of its value."""
    operator, arguments, *_ = CASES[case]
    call = written(operator, *arguments)
    schema = call.schema
    assert (schema.domain, schema.name, schema.since_version) == (DOMAIN, call.operator, 1)
    assert schema.min_input <= len(call.inputs) <= schema.max_input
    assert len(schema.outputs) == len(operator._schema.returns)
    assert schema.attributes.keys() == call.attributes.keys()
    for name, value in call.attributes.items():
        kind = onnx.AttributeProto.AttributeType.Name(onnx.helper.make_attribute(name, value).type)
        assert schema.attributes[name].type == getattr(OpSchema.AttrType, kind), name


def test_a_mask_holds_booleans_or_floats() -> None:
    (kinds,) = written(SDPA, QUERY, "k", "v", "m").schema.type_constraints
    assert sorted(kinds.allowed_type_strs) == ["tensor(bool)", "tensor(float)"]


def test_every_operator_has_a_case() -> None:
    assert {operator for operator, *_ in CASES.values()} | STANDARD.keys() == TRANSLATIONS.keys()


def test_attention_takes_the_scale_it_is_given() -> None:
    assert written(SDPA, QUERY, "k", "v", scale=2.0).attributes == {"scale": 2.0}


@pytest.mark.parametrize("option", [{"dropout_p": 0.1}, {"is_causal": True}, {"enable_gqa": True}])
def test_attention_of_another_kind_is_not_lowered(option: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match="dropout, a causal mask or grouped queries"):
        written(SDPA, QUERY, "k", "v", **option)
