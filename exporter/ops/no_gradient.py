"""Operators that choose, through which no gradient flows: training learns through the tokens that they keep."""

from typing import Any

from torch import Tensor

__all__ = ["register_without_gradient"]


def register_without_gradient(operator: Any, count: int) -> None:
    """Let autograd pass an operator of torch.library with `count` inputs, and give none of them a gradient."""

    def mark(ctx: Any, inputs: tuple[Any, ...], output: Tensor | tuple[Tensor, ...]) -> None:  # noqa: ARG001
        ctx.mark_non_differentiable(*(output if isinstance(output, tuple) else (output,)))

    def no_gradients(ctx: Any, *grads: Tensor) -> tuple[None, ...]:  # noqa: ARG001
        return (None,) * count

    operator.register_autograd(no_gradients, setup_context=mark)
