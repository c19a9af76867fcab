"""What every later stage knows of a ViT: its embedding, its blocks part by part, its classifier.

A family is one adapter that fills in these parts. Nothing after this stage asks which family it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exporter.models.parts import Linear, Rotary
from exporter.records import ModelSpec

__all__ = ["BlockParts", "Classifier", "PrunableViT"]


@dataclass(frozen=True)
class BlockParts:
    """The modules of one pre-norm block: x + attn(norm1 x), then x + mlp(norm2 x).

    Modules that a family does not have are `nn.Identity`. `qkv` gives query, key and value one after the
    other, each [heads, head_dim]. `whole` is the untouched block, called where nothing is pruned; where there is
    a `rotary`, it takes the rotary's table as `rope`. `act` works entry by entry, or is a `Gate`.
    """

    whole: nn.Module
    norm1: nn.Module
    qkv: Linear
    q_norm: nn.Module
    k_norm: nn.Module
    context_norm: nn.Module
    proj: nn.Linear
    attention_out: nn.Module
    norm2: nn.Module
    fc1: Linear
    act: nn.Module
    hidden_norm: nn.Module
    fc2: nn.Linear
    mlp: nn.Module
    mlp_out: nn.Module
    num_heads: int
    head_dim: int
    attention_dropout: float
    rotary: Rotary | None = None


@dataclass(frozen=True)
class Classifier:
    """A linear classifier and the prefix token that it reads."""

    token: int
    linear: nn.Linear


class PrunableViT(ABC):
    """A ViT with a class token, seen part by part; an adapter sets these three, then calls `__init__`.

    Attributes:
        model: The network, in eval mode and frozen.
        blocks: First to last.
        classifiers: The linear layers whose outputs are averaged into the logits; LRP starts there.
        embeds: Whether the "logits" are an embedding, as those of a CLIP tower are: no class to explain then.
    """

    model: nn.Module
    blocks: Sequence[BlockParts]
    classifiers: Sequence[Classifier]
    embeds: bool = False

    def __init__(self, model: nn.Module, spec: ModelSpec, weights_sha256: str) -> None:
        self.model = model
        self.spec = spec
        self.weights_sha256 = weights_sha256

    @abstractmethod
    def embed(self, images: Tensor) -> Tensor:
        """[batch, 3, H, W] to the tokens of block 1, [batch, prefix + patches, dim]."""

    @abstractmethod
    def norm(self, tokens: Tensor) -> Tensor:
        """The final norm of the trunk, same shape."""

    def features(self, normed: Tensor) -> Tensor:
        """What the classifiers read, token by token: [batch, tokens, dim], after any norm of the head's own."""
        return normed

    @abstractmethod
    def classify(self, normed: Tensor) -> Tensor:
        """[batch, tokens, dim] after the final norm to logits [batch, classes], by the model's own head.

        Prefix tokens stand first; the order of patches behind them is a runtime's own, and must not matter.
        """

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device
