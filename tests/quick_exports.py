"""Half of the time for each export of a tiny model, of which the tests make hundreds.

What torch.onnx does again in each export is done once a process, and what changes nothing is left out. A version of
a library without such a function is left as it is.
"""

from collections.abc import Callable
from functools import cache, cached_property
from inspect import signature
from typing import Any

import jaxtyping
import torch
import torch.fx.proxy
from onnxscript.rewriter import _rewrite_rule
from onnxscript.values import TracedOnnxFunction
from torch._subclasses.fake_tensor import FakeTensor
from torch.onnx._internal.exporter import _decomp, _schemas
from torch.onnx._internal.fx.passes import type_promotion

NAME = "function_ir"
SIGNATURE = "op_signature_from_function"
DECOMPOSITIONS = "create_onnx_friendly_decomposition_table"
INTERPRETER = "_TypePromotionInterpreter"


def make_exports_quick() -> None:
    """Leave out what was done before, what changes nothing, and the checks of axis names."""
    _read_translations_once()
    _list_decompositions_once()
    _run_no_node_again()
    _try_rules_of_the_operator()
    _infer_plain_shapes_directly()
    _record_no_stacks()
    torch.export.export = _captured_plainly(torch.export.export)


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
    setattr(
        _decomp, DECOMPOSITIONS, lambda translated: dict(listed(frozenset(translated)))
    )


def _run_no_node_again() -> None:
    """torch.onnx runs every node again to promote types, on fake tensors; one without a change has its result."""
    interpreter: Any = getattr(type_promotion, INTERPRETER, None)
    rules = signature(type_promotion.get_type_promotion_rule).parameters
    # torch 2.6
    if interpreter is None or list(rules) != ["node", "type_promotion_table"]:
        return

    def run_node(self: Any, node: torch.fx.Node) -> Any:
        with self._set_current_node(node):
            rule = type_promotion.get_type_promotion_rule(
                node, self.type_promotion_table
            )
            if rule:
                self._maybe_promote_node(node, rule)
        known = node.op == "call_function" and "val" in node.meta
        return node.meta["val"] if known else torch.fx.Interpreter.run_node(self, node)

    interpreter.run_node = run_node


def _try_rules_of_the_operator() -> None:
    """onnxscript tries each of its rules on each node, though a pattern ends in one operator."""
    rule = _rewrite_rule.RewriteRule
    attempt, fitting = rule.try_rewrite, dict[tuple[Any, str], bool]()

    def try_rewrite(self: Any, model: Any, graph: Any, node: Any, **more: Any) -> Any:
        fits = fitting.get((self, node.op_type))
        if fits is None:
            last = self._target_pattern.output_nodes[0]
            fits = fitting[self, node.op_type] = last.op.matches(node.op_type)
        return attempt(self, model, graph, node, **more) if fits else None

    rule.try_rewrite = try_rewrite


def _infer_plain_shapes_directly() -> None:
    """torch.export runs linear layers and norms on fake tensors operator by operator, for a shape that is known."""
    aten, call = torch.ops.aten, torch._ops.OpOverload.__call__

    def linear(tokens: Any, weight: Any, _: Any = None) -> Any:
        return tokens.new_empty((*tokens.shape[:-1], weight.shape[0]))

    def same(tokens: Any, *_: Any, **__: Any) -> Any:
        return tokens.new_empty(tokens.shape)

    known = {
        aten.linear.default: linear,
        aten.layer_norm.default: same,
        aten.gelu.default: same,
    }

    def quick(self: Any, /, *arguments: Any, **more: Any) -> Any:
        infer = known.get(self)
        if infer is not None and isinstance(arguments[0], FakeTensor):
            return infer(*arguments, **more)
        return call(self, *arguments, **more)

    torch._ops.OpOverload.__call__ = quick  # type: ignore[method-assign]


def _record_no_stacks() -> None:
    """torch.fx keeps the Python stack of each node, which no test reads."""
    traced = getattr(torch.fx.proxy, "CapturedTraceback", None)
    if traced is not None:
        torch.fx.proxy.CapturedTraceback = _NoStack  # type: ignore[assignment, attr-defined]


class _NoStack:
    @staticmethod
    def extract(*_: Any, **__: Any) -> "_NoStack":
        return _NoStack()

    def summary(self) -> None:
        return None


def _captured_plainly(export: Callable[..., Any]) -> Callable[..., Any]:
    """Without the checks of axis names, which a run makes too, and a cache that costs more than it saves."""

    def quick(*arguments: Any, **more: Any) -> Any:
        before = jaxtyping.config.jaxtyping_disable
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            with torch._dynamo.config.patch(fake_tensor_cache_enabled=False):
                return export(*arguments, **more)
        finally:
            jaxtyping.config.update("jaxtyping_disable", before)

    return quick
