"""Four steps of a pruned ViT as single nodes of domain `star`, until a target's passes expand them.

torch.onnx would otherwise scatter each over a dozen nodes that a pass would have to find again.
"""

from collections.abc import Callable
from typing import Any

import torch
from onnx.defs import OpSchema
from onnxscript import values

# These register the operators that TRANSLATIONS names.
import exporter.models.class_row
import exporter.pruning.select  # noqa: F401

__all__ = ["ATTENTION", "CLASS_ROW", "DOMAIN", "KEEP_TOP_K", "TAKE_TOKENS", "TRANSLATIONS"]

DOMAIN = "star"
KEEP_TOP_K, TAKE_TOKENS, ATTENTION, CLASS_ROW = "KeepTopK", "TakeTokens", "Attention", "ClassRow"

_FLOAT, _INT64 = "tensor(float)", "tensor(int64)"


def _marker(
    name: str, inputs: dict[str, str], output: str, attributes: dict[str, OpSchema.AttrType]
) -> values.Op:
    schema = OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[OpSchema.FormalParameter(key, kind) for key, kind in inputs.items()],
        outputs=[OpSchema.FormalParameter("result", output)],
        attributes=[OpSchema.Attribute(key, kind, "") for key, kind in attributes.items()],
    )
    return values.Op(values.Opset(DOMAIN, 1), name, schema)


_keep_top_k = _marker(KEEP_TOP_K, {"score": _FLOAT}, _INT64, {"k": OpSchema.AttrType.INT})
_take_tokens = _marker(
    TAKE_TOKENS, {"tokens": _FLOAT, "keep": _INT64}, _FLOAT, {"num_prefix_tokens": OpSchema.AttrType.INT}
)
_attention = _marker(
    ATTENTION, {"query": _FLOAT, "key": _FLOAT, "value": _FLOAT}, _FLOAT, {"scale": OpSchema.AttrType.FLOAT}
)

_class_row = _marker(CLASS_ROW, {"query": _FLOAT, "key": _FLOAT}, _FLOAT, {"scale": OpSchema.AttrType.FLOAT})


def _translate_class_row(query: Any, key: Any, scale: float) -> Any:
    return _class_row(query, key, scale=scale)


def _translate_keep_top_k(score: Any, k: int) -> Any:
    return _keep_top_k(score, k=k)


def _translate_take_tokens(tokens: Any, keep: Any, num_prefix_tokens: int) -> Any:
    return _take_tokens(tokens, keep, num_prefix_tokens=num_prefix_tokens)


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
    if attn_mask is not None or dropout_p or is_causal or enable_gqa:
        raise NotImplementedError("attention with a mask, dropout or grouped queries")
    return _attention(query, key, value, scale=scale if scale is not None else query.shape[-1] ** -0.5)


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.star.class_row.default: _translate_class_row,
    torch.ops.star.keep_top_k.default: _translate_keep_top_k,
    torch.ops.star.take_tokens.default: _translate_take_tokens,
    torch.ops.aten.scaled_dot_product_attention.default: _translate_attention,
}
