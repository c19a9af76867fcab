"""A third less time for each export of a tiny model, of which the tests make hundreds.

What torch.onnx does again in each export is done once a process. A version of a library without such a function is
left as it is.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import jaxtyping
import torch
from onnxscript.values import TracedOnnxFunction
from torch.onnx._internal.exporter import _decomp, _schemas

__all__ = ["make_exports_quick"]

NAME = "function_ir"
SIGNATURE = "op_signature_from_function"
DECOMPOSITIONS = "create_onnx_friendly_decomposition_table"


def make_exports_quick() -> None:
    """Leave out what was done before, and the checks of axis names."""
    _read_translations_once()
    _list_decompositions_once()
    torch.export.export = _without_checks(torch.export.export)


def _read_translations_once() -> None:
    """torch.onnx reads the source of its 500 translations at each export, for their domain and their signature."""
    found = vars(TracedOnnxFunction).get(NAME)
    if isinstance(found, property) and found.fget is not None:
        once = cached_property(found.fget)
        once.__set_name__(TracedOnnxFunction, NAME)
        setattr(TracedOnnxFunction, NAME, once)
    if hasattr(_schemas, SIGNATURE):
        setattr(_schemas, SIGNATURE, cache(getattr(_schemas, SIGNATURE)))


def _list_decompositions_once() -> None:
    """torch.onnx lists them at each export, from what its translations leave."""
    listed = cache(getattr(_decomp, DECOMPOSITIONS))
    setattr(_decomp, DECOMPOSITIONS, lambda translated: dict(listed(frozenset(translated))))


def _without_checks(export: Callable[..., Any]) -> Callable[..., Any]:
    """Axis names in signatures are checked when a model runs: its export runs the same functions."""

    def quick(*arguments: Any, **more: Any) -> Any:
        before = jaxtyping.config.jaxtyping_disable
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            return export(*arguments, **more)
        finally:
            jaxtyping.config.update("jaxtyping_disable", before)

    return quick
