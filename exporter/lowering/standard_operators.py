"""Torch operators that become one standard operator, where torch.onnx would write more, or differs by version."""

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18, opset20

import exporter.ops.selection  # noqa: F401  (registers take_rows)

__all__ = ["STANDARD"]


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
