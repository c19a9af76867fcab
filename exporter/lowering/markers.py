"""Markers: single nodes of domain `star` for the steps of a pruned ViT that each target lowers differently.

torch.onnx would otherwise export each as a dozen nodes that a pass would have to find again. A target's passes
expand them; only CdfRetain may remain, as a node with a function body, and SelectTopK in KeepTopK's place.
"""

from collections.abc import Callable
from typing import Any

import torch
from onnx.defs import OpSchema
from onnxscript import opset18, opset20, values

import exporter.ops.cdf_retain.torch_op
import exporter.ops.factors
import exporter.ops.merging
import exporter.ops.selection  # noqa: F401  (these register operators)
from exporter.ops.cdf_retain.onnx_function import (
    CDF_RETAIN,
    CDF_RETAIN_PADDED,
    DOMAIN,
    PLUGIN_ATTRIBUTES,
    SELECT_TOP_K,
)

__all__ = [
    "ATTENTION",
    "CDF_RETAIN",
    "CDF_RETAIN_PADDED",
    "CLASS_ROW",
    "DISSIMILARITY",
    "DOMAIN",
    "KEEP_TOP_K",
    "MERGE_INTO",
    "MERGE_TOKENS",
    "PACK_TOKENS",
    "PAIR_TOKENS",
    "RECEIVED",
    "SELECT_TOP_K",
    "STANDARD",
    "TAKE_TOKENS",
    "TRANSLATIONS",
]


def _take_rows(packed: Any, slots: Any) -> Any:
    """Translate to one Gather. The exporter would flatten its indices."""
    return opset18.Gather(packed, slots, axis=0)


def _index_select(self: Any, dim: int, index: Any) -> Any:
    """Translate to one Gather. The exporter would flatten the index, which is flat."""
    return opset18.Gather(self, index, axis=dim)


def _gelu(self: Any, approximate: str = "none") -> Any:  # torch finds the function by these names
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
    normed = opset18.BatchNormalization(input, weight, bias, running_mean, running_var, epsilon=eps)
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
    return opset18.Cast(self, to=dtype) if self.dtype != dtype else opset18.Identity(self)


STANDARD: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.star.take_rows.default: _take_rows,
    torch.ops.aten.index_select.default: _index_select,
    torch.ops.aten.gelu.default: _gelu,
    torch.ops.aten._native_batch_norm_legit_no_training.default: _batch_norm,
    torch.ops.aten.batch_norm.default: _batch_norm_as_captured,
    torch.ops.aten.to.dtype: _to_dtype,
}


# These imports register the operators in TRANSLATIONS.


KEEP_TOP_K, TAKE_TOKENS, ATTENTION, CLASS_ROW = "KeepTopK", "TakeTokens", "Attention", "ClassRow"
MERGE_INTO, MERGE_TOKENS, PAIR_TOKENS = "MergeInto", "MergeTokens", "PairTokens"
RECEIVED, DISSIMILARITY, PACK_TOKENS = "Received", "Dissimilarity", "PackTokens"

_FLOAT, _INT64, _BOOL = "tensor(float)", "tensor(int64)", "tensor(bool)"
# A mask holds which keys may be attended to, or what is added to their logits.
_MASK = "Mask"
_MASKS = (_MASK, ["tensor(bool)", _FLOAT], "")


def _marker(
    name: str,
    inputs: dict[str, str],
    outputs: dict[str, str],
    attributes: dict[str, OpSchema.AttrType],
    optional: dict[str, str] | None = None,
) -> values.Op:
    may_miss = OpSchema.FormalParameterOption.Optional
    schema = OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[
            *(OpSchema.FormalParameter(key, kind) for key, kind in inputs.items()),
            *(
                OpSchema.FormalParameter(key, kind, param_option=may_miss)
                for key, kind in (optional or {}).items()
            ),
        ],
        outputs=[OpSchema.FormalParameter(key, kind) for key, kind in outputs.items()],
        type_constraints=[_MASKS] if optional and _MASK in optional.values() else [],
        attributes=[OpSchema.Attribute(key, kind, "") for key, kind in attributes.items()],
    )
    return values.Op(values.Opset(DOMAIN, 1), name, schema)


_keep_top_k = _marker(KEEP_TOP_K, {"score": _FLOAT}, {"keep": _INT64}, {"k": OpSchema.AttrType.INT})
_take_tokens = _marker(
    TAKE_TOKENS,
    {"tokens": _FLOAT, "keep": _INT64},
    {"taken": _FLOAT},
    {"num_prefix_tokens": OpSchema.AttrType.INT},
)
_merge_into = _marker(
    MERGE_INTO,
    {"key": _FLOAT, "keep": _INT64},
    {"into": _INT64, "gap": _FLOAT},
    {"num_prefix_tokens": OpSchema.AttrType.INT},
)
_merge_tokens = _marker(
    MERGE_TOKENS,
    {"tokens": _FLOAT, "into": _INT64},
    {"merged": _FLOAT, "merged_sizes": _FLOAT},
    {"kept": OpSchema.AttrType.INT, "num_prefix_tokens": OpSchema.AttrType.INT},
    optional={"sizes": _FLOAT},
)
_pair_tokens = _marker(
    PAIR_TOKENS,
    {"key": _FLOAT},
    {"keep": _INT64, "into": _INT64, "score": _FLOAT, "gap": _FLOAT},
    {"kept": OpSchema.AttrType.INT, "num_prefix_tokens": OpSchema.AttrType.INT},
)
_attention = _marker(
    ATTENTION,
    {"query": _FLOAT, "key": _FLOAT, "value": _FLOAT},
    {"context": _FLOAT},
    {"scale": OpSchema.AttrType.FLOAT},
    optional={"mask": _MASK},
)
_class_row = _marker(
    CLASS_ROW,
    {"query": _FLOAT, "key": _FLOAT},
    {"row": _FLOAT},
    {"scale": OpSchema.AttrType.FLOAT, "num_class_tokens": OpSchema.AttrType.INT},
)
_received = _marker(
    RECEIVED,
    {"query": _FLOAT, "key": _FLOAT},
    {"mean": _FLOAT},
    {"scale": OpSchema.AttrType.FLOAT, "stride": OpSchema.AttrType.INT},
    optional={"key_bias": _FLOAT},
)
_dissimilarity = _marker(
    DISSIMILARITY,
    {"key": _FLOAT},
    {"score": _FLOAT},
    {"num_prefix_tokens": OpSchema.AttrType.INT},
    optional={"live": _BOOL},
)
_pack_tokens = _marker(
    PACK_TOKENS,
    {"slots": _INT64, "index": _INT64, "count": _INT64},
    {"rows": _INT64, "live": _BOOL, "slots_after": _INT64, "places": _INT64},
    {"num_prefix_tokens": OpSchema.AttrType.INT},
)
_RETAINED = {"keep_index": _INT64, "keep_count": _INT64}
_cdf_retain = _marker(
    CDF_RETAIN,
    {"score": _FLOAT, "valid_count": _INT64},
    {**_RETAINED, "width": _INT64},
    {"mass": OpSchema.AttrType.FLOAT, **dict.fromkeys(PLUGIN_ATTRIBUTES, OpSchema.AttrType.STRING)},
)
_cdf_retain_padded = _marker(
    CDF_RETAIN_PADDED,
    {"score": _FLOAT, "valid_count": _INT64},
    _RETAINED,
    {"mass": OpSchema.AttrType.FLOAT, "width": OpSchema.AttrType.INTS},
)


def _translate_class_row(query: Any, key: Any, scale: float, num_class_tokens: int) -> Any:
    return _class_row(query, key, scale=scale, num_class_tokens=num_class_tokens)


def _translate_received(query: Any, key: Any, key_bias: Any, scale: float, stride: int) -> Any:
    return _received(query, key, *([] if key_bias is None else [key_bias]), scale=scale, stride=stride)


def _translate_dissimilarity(key: Any, live: Any, num_prefix_tokens: int) -> Any:
    return _dissimilarity(key, *([] if live is None else [live]), num_prefix_tokens=num_prefix_tokens)


def _translate_keep_top_k(score: Any, k: int) -> Any:
    return _keep_top_k(score, k=k)


def _translate_take_tokens(tokens: Any, keep: Any, num_prefix_tokens: int) -> Any:
    return _take_tokens(tokens, keep, num_prefix_tokens=num_prefix_tokens)


def _translate_merge_into(key: Any, keep: Any, num_prefix_tokens: int) -> Any:
    return _merge_into(key, keep, num_prefix_tokens=num_prefix_tokens)


def _translate_merge_tokens(tokens: Any, into: Any, sizes: Any, kept: int, num_prefix_tokens: int) -> Any:
    inputs = (tokens, into) if sizes is None else (tokens, into, sizes)
    return _merge_tokens(*inputs, kept=kept, num_prefix_tokens=num_prefix_tokens)


def _translate_pair_tokens(key: Any, keep: int, num_prefix_tokens: int) -> Any:
    return _pair_tokens(key, kept=keep, num_prefix_tokens=num_prefix_tokens)


def _translate_pack_tokens(slots: Any, index: Any, count: Any, num_prefix_tokens: int) -> Any:
    return _pack_tokens(slots, index, count, num_prefix_tokens=num_prefix_tokens)


def _translate_cdf_retain(score: Any, valid_count: Any, mass: float) -> Any:
    return _cdf_retain(score, valid_count, mass=mass, **PLUGIN_ATTRIBUTES)


def _translate_cdf_retain_padded(score: Any, valid_count: Any, mass: float, width: int) -> Any:
    return _cdf_retain_padded(score, valid_count, mass=mass, width=[width])


def _translate_attention(  # noqa: PLR0917  (as the torch operator has them)
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
        raise NotImplementedError("attention with dropout, a causal mask or grouped queries")
    scale = scale if scale is not None else query.shape[-1] ** -0.5
    return _attention(query, key, value, *([] if attn_mask is None else [attn_mask]), scale=scale)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.star.class_row.default: _translate_class_row,
    torch.ops.star.received.default: _translate_received,
    torch.ops.star.dissimilarity.default: _translate_dissimilarity,
    torch.ops.star.keep_top_k.default: _translate_keep_top_k,
    torch.ops.star.take_tokens.default: _translate_take_tokens,
    torch.ops.star.merge_into.default: _translate_merge_into,
    torch.ops.star.merge_tokens.default: _translate_merge_tokens,
    torch.ops.star.pair_tokens.default: _translate_pair_tokens,
    torch.ops.star.pack_tokens.default: _translate_pack_tokens,
    torch.ops.star.cdf_retain.default: _translate_cdf_retain,
    torch.ops.star.cdf_retain_padded.default: _translate_cdf_retain_padded,
    torch.ops.aten.scaled_dot_product_attention.default: _translate_attention,
    **STANDARD,
}
