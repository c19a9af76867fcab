"""What intra-layer factors read, as operators that an exporter sees as one node each.

Training learns through the tokens that are kept, not through the choice. How alike two patches are is
the cosine of their keys, averaged over heads (ToMe, section 3), or of the tokens themselves.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch._library.custom_ops import CustomOpDef


class Operator:
    """A function of tensors that is a single node of a captured program, and plain PyTorch everywhere else.

    Its numbers are those of its inputs: autocast does not reach into it.
    """

    def __init__(self, schema: str, function: Callable[..., Any]) -> None:
        name, inputs, results = schema.partition("(")
        self.function = function
        self.node: CustomOpDef = torch.library.custom_op(
            f"star::{name}", function, mutates_args=(), schema=inputs + results
        )
        self.register_fake = self.node.register_fake
        _without_gradient(self.node)

    def __call__(self, *operands: Any) -> Any:
        """Compute it, or write its node."""
        if _captured:
            return self.node(*operands)
        device = operands[0].device.type
        # Tensors of the device "meta" have no autocast.
        available = torch.amp.is_autocast_available(device)
        if not available or not torch.is_autocast_enabled(device):
            return self.function(*operands)
        with torch.autocast(device, enabled=False):
            return self.function(*operands)


def _without_gradient(node: CustomOpDef) -> None:
    """Let autograd pass a node, and give none of its inputs a gradient."""
    nothing = (None,) * len(node._opoverload._schema.arguments)

    def mark(
        ctx: Any, inputs: tuple[Any, ...], output: Tensor | tuple[Tensor, ...]
    ) -> None:
        ctx.mark_non_differentiable(
            *(output if isinstance(output, tuple) else (output,))
        )

    node.register_autograd(lambda _ctx, *_: nothing, setup_context=mark)


# Not empty while a program is captured.
_captured: list[bool] = []


@contextmanager
def as_nodes() -> Iterator[None]:
    """Within the `with`, an operator of ours is one node of a program, which has no gradient."""
    _captured.append(True)
    try:
        yield
    finally:
        _captured.pop()


def deciding() -> AbstractContextManager[object]:
    """Return a context in which nothing is kept for gradients: which patches stay passes none."""
    return nullcontext() if _captured else torch.no_grad()


def operator(schema: str) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function an operator: name, inputs and results as in PyTorch's schemas, without defaults.

    A program leaves an input out that has its default value, and a translation to ONNX would miss it.
    """
    return partial(Operator, schema)


# Upper bound of the difference of two cosines: the gap of a token that joins its survivor in any case.
WIDEST_GAP = 2.0
# The least length by which a direction is divided: one of length 0 stays 0.
TINY = 1e-12


def directions(
    key: Float[Tensor, "b h t c"], num_prefix_tokens: int
) -> Float[Tensor, "b n c"]:
    """Return the mean over heads of each patch's key, divided by its length, in float32."""
    mean = key.float().mean(dim=1)[:, num_prefix_tokens:]
    return mean / torch.linalg.vector_norm(mean, dim=-1, keepdim=True).clamp_min(TINY)


@operator(
    "class_row(Tensor query, Tensor key, float scale, SymInt num_class_tokens) -> Tensor"
)
def class_row(
    query: Float[Tensor, "b h t c"],
    key: Float[Tensor, "b h t c"],
    scale: float,
    num_class_tokens: int,
) -> Float[Tensor, "b rows t"]:
    """Return scale · q · keyᵀ of the first `num_class_tokens` tokens, O(tokens · dim) beside the fused attention.

    There is a row for each head and class token, those of one head side by side.
    """
    return (query[:, :, :num_class_tokens] * scale @ key.transpose(-2, -1)).flatten(
        1, 2
    )


@class_row.register_fake
def _(query: Tensor, key: Tensor, scale: float, num_class_tokens: int) -> Tensor:
    batch, heads, tokens, _ = key.shape
    return key.new_empty(batch, heads * num_class_tokens, tokens)


@operator(
    "received(Tensor query, Tensor key, Tensor? key_bias, float scale, SymInt stride) -> Tensor"
)
def received(
    query: Float[Tensor, "b h t c"],
    key: Float[Tensor, "b h t c"],
    key_bias: Float[Tensor, "b t"] | None,
    scale: float,
    stride: int,
) -> Float[Tensor, "b t"]:
    """Return the column means of softmax(scale · q · keyᵀ + bias), over heads and queries, float32.

    One step, from uniform weights, of the weighted page rank of Zero-TPrune (Wang et al., CVPR 2024). It is
    computed beside the fused attention, O(tokens² / stride · dim).

    Args:
        query: Of all tokens.
        key: Of all tokens.
        key_bias: Added to the logits of each key. A token of −∞ is padding, which is neither key nor query.
        scale: Of the logits.
        stride: Only every so many-th token is a query, from the first on.
    """
    logits = query[:, :, ::stride].float() * scale @ key.float().transpose(-2, -1)
    if key_bias is None:
        return logits.softmax(dim=-1).mean(dim=(1, 2))
    attention = (logits + key_bias[:, None, None]).softmax(dim=-1).mean(dim=1)
    asking = (key_bias[:, ::stride] > -torch.inf).float()
    shares = asking / asking.sum(dim=1, keepdim=True)
    return (attention * shares.unsqueeze(-1)).sum(dim=1)


@received.register_fake
def _(
    query: Tensor, key: Tensor, key_bias: Tensor | None, scale: float, stride: int
) -> Tensor:
    return key.new_empty((key.shape[0], key.shape[2]), dtype=torch.float32)


@operator("dissimilarity(Tensor key, Tensor? live, SymInt num_prefix_tokens) -> Tensor")
def dissimilarity(
    key: Float[Tensor, "b h t c"],
    live: Bool[Tensor, "b t"] | None,
    num_prefix_tokens: int,
) -> Float[Tensor, "b n"]:
    """Return 1 − the mean cosine between a patch's mean key and those of all patches, in [0, 2], float32.

    The mean of the cosines is the product with the mean direction: O(patches · head_dim).

    Args:
        key: The keys of all tokens, prefix tokens first; their mean over heads is compared.
        live: Which tokens are an image's own, None for all.
        num_prefix_tokens: Tokens before the first patch.
    """
    patches = directions(key, num_prefix_tokens)
    if live is None:
        mean = patches.mean(dim=1, keepdim=True)
    else:
        marks = live[:, num_prefix_tokens:].float()
        shares = marks / marks.sum(dim=1, keepdim=True)
        mean = (shares.unsqueeze(-1) * patches).sum(dim=1, keepdim=True)
    return 1.0 - (patches * mean).sum(dim=-1)


@dissimilarity.register_fake
def _(key: Tensor, live: Tensor | None, num_prefix_tokens: int) -> Tensor:
    return key.new_empty(
        (key.shape[0], key.shape[2] - num_prefix_tokens), dtype=torch.float32
    )
