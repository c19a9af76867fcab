"""Markers: single nodes of domain `star` for the steps of a pruned ViT that each target lowers differently.

torch.onnx would otherwise export each as a dozen nodes that a pass would have to find again. A target's passes
expand them; only CdfRetain may remain, as a node with a function body.
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import torch
from onnx.defs import OpSchema
from onnxscript import opset18, opset20, values

import exporter.core.prune.ops.factors
import exporter.core.prune.ops.merging
import exporter.core.prune.ops.selection  # noqa: F401  (these register operators)
from exporter.core.prune.ops.onnx_functions import (
    CDF_RETAIN,
    CDF_RETAIN_PADDED,
    DOMAIN,
    PLUGIN_ATTRIBUTES,
)


def _take_rows(packed: Any, slots: Any) -> Any:
    """Translate to one Gather. The exporter would flatten its indices."""
    return opset18.Gather(packed, slots, axis=0)


def _index_select(self: Any, dim: int, index: Any) -> Any:
    """Translate to one Gather. The exporter would flatten the index, which is flat."""
    return opset18.Gather(self, index, axis=dim)


def _gelu(
    self: Any, approximate: str = "none"
) -> Any:  # torch finds the function by these names
    """Translate to one node, in any opset: torch writes that of opset 20 only where it exports to 20 or later."""
    return opset20.Gelu(self, approximate=approximate)


def _batch_norm(  # noqa: PLR0917  (as the torch operator has them)
    input: Any,  # noqa: A002
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,  # noqa: ARG001
    eps: float,
) -> Any:
    """Translate to one node, and to the statistics that torch 2.6 expects beside it; inference reads none."""
    normed = opset18.BatchNormalization(
        input, weight, bias, running_mean, running_var, epsilon=eps
    )
    nothing = opset18.Constant(value_float=0.0)
    return normed if isinstance(normed, tuple) else (normed, nothing, nothing)


def _batch_norm_as_captured(  # noqa: PLR0917  (as the torch operator has them)
    input: Any,  # noqa: A002
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,  # noqa: ARG001
) -> Any:
    """Translate the operator as it is before torch.onnx decomposes it."""
    if training:
        raise NotImplementedError("batch normalisation in training mode")
    return _batch_norm(input, weight, bias, running_mean, running_var, momentum, eps)[0]


def _to_dtype(
    self: Any,
    dtype: int,
    non_blocking: bool = False,  # noqa: ARG001
    copy: bool = False,  # noqa: ARG001
    memory_format: Any = None,  # noqa: ARG001
) -> Any:
    """Translate to a Cast, where the type is another one."""
    return (
        opset18.Cast(self, to=dtype) if self.dtype != dtype else opset18.Identity(self)
    )


STANDARD: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.star.take_rows.default: _take_rows,
    torch.ops.aten.index_select.default: _index_select,
    torch.ops.aten.gelu.default: _gelu,
    torch.ops.aten._native_batch_norm_legit_no_training.default: _batch_norm,
    torch.ops.aten.batch_norm.default: _batch_norm_as_captured,
    torch.ops.aten.to.dtype: _to_dtype,
}


ATTENTION = "Attention"
ATTENTION_RECEIVED = "Received"
CLASS_ROW = "ClassRow"
DISSIMILARITY = "Dissimilarity"
KEEP_TOP_K = "KeepTopK"
MERGE_INTO = "MergeInto"
MERGE_TOKENS = "MergeTokens"
PACK_TOKENS = "PackTokens"
PAIR_TOKENS = "PairTokens"
TAKE_TOKENS = "TakeTokens"
_TENSOR = ("Tensor", ["tensor(float)", "tensor(int64)", "tensor(bool)"], "")
_ATTRIBUTES = {
    int: OpSchema.AttrType.INT,
    float: OpSchema.AttrType.FLOAT,
    str: OpSchema.AttrType.STRING,
    list: OpSchema.AttrType.INTS,
}
# By their names in PyTorch's schemas.
_NUMBERS = {"int": int, "float": float}


def _marker(kind: str, *inputs: Any, results: int = 1, **attributes: Any) -> Any:
    """Write one marker; an input that is None is left out."""
    parameter = OpSchema.FormalParameter
    optional = OpSchema.FormalParameterOption.Optional
    schema = OpSchema(
        kind,
        DOMAIN,
        1,
        inputs=[
            parameter(f"input_{place}", _TENSOR[0], param_option=optional)
            for place in range(len(inputs))
        ],
        outputs=[parameter(f"result_{place}", _TENSOR[0]) for place in range(results)],
        type_constraints=[_TENSOR],
        attributes=[
            OpSchema.Attribute(name, _ATTRIBUTES[type(value)], "")
            for name, value in attributes.items()
        ],
    )
    operands = [operand for operand in inputs if operand is not None]
    return values.Op(values.Opset(DOMAIN, 1), kind, schema)(*operands, **attributes)


def _translation(kind: str, operator: Any, **attributes: Any) -> Callable[..., Any]:
    """Return the translation of an operator of ours to a marker: tensors are its inputs, numbers its attributes."""
    schema = operator._schema
    types = {
        argument.name: _NUMBERS.get(str(argument.type), Any)
        for argument in schema.arguments
    }
    signature = Signature(
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in types]
    )

    def translate(*operands: Any, **named: Any) -> Any:
        values = signature.bind(*operands, **named).arguments
        inputs = [values.pop(name) for name, type_ in types.items() if type_ is Any]
        results = len(schema.returns)
        return _marker(kind, *inputs, results=results, **values, **attributes)

    # torch.onnx calls it by this signature; what is annotated as a number is an attribute.
    translate.__signature__ = signature  # type: ignore[attr-defined]
    translate.__annotations__ = {**types, "return": Any}
    return translate


def _cdf_retain_padded(score: Any, valid_count: Any, mass: float, width: int) -> Any:
    return _marker(
        CDF_RETAIN_PADDED, score, valid_count, results=2, mass=mass, width=[width]
    )


def _attention(  # noqa: PLR0917  (as the torch operator has them)
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p or is_causal or enable_gqa:
        raise NotImplementedError(
            "attention with dropout, a causal mask or grouped queries"
        )
    scale = scale if scale is not None else query.shape[-1] ** -0.5
    return _marker(ATTENTION, query, key, value, attn_mask, scale=scale)


# The operators of ours by their markers.
OPERATORS = {
    CLASS_ROW: torch.ops.star.class_row.default,
    ATTENTION_RECEIVED: torch.ops.star.received.default,
    DISSIMILARITY: torch.ops.star.dissimilarity.default,
    KEEP_TOP_K: torch.ops.star.keep_top_k.default,
    TAKE_TOKENS: torch.ops.star.take_tokens.default,
    MERGE_INTO: torch.ops.star.merge_into.default,
    MERGE_TOKENS: torch.ops.star.merge_tokens.default,
    PAIR_TOKENS: torch.ops.star.pair_tokens.default,
    PACK_TOKENS: torch.ops.star.pack_tokens.default,
}
# Those that no shipped file has.
MARKERS = (ATTENTION, *OPERATORS)
_CDF_RETAIN = torch.ops.star.cdf_retain.default

TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **{operator: _translation(kind, operator) for kind, operator in OPERATORS.items()},
    _CDF_RETAIN: _translation(CDF_RETAIN, _CDF_RETAIN, **PLUGIN_ATTRIBUTES),
    torch.ops.star.cdf_retain_padded.default: _cdf_retain_padded,
    torch.ops.aten.scaled_dot_product_attention.default: _attention,
    **STANDARD,
}
