"""What every later stage knows of a ViT: its embedding, its blocks part by part, its classifier.

A family is one adapter that fills in these parts. Nothing after this stage asks which family it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exporter.models.parts import Linear, Rotary
from exporter.records import ModelSpec, Output
from exporter.tensor_names import LOGITS
from exporter.vocabulary import OutputKind

__all__ = ["AttentionParts", "BlockParts", "Classifier", "MlpParts", "PrunableViT"]


@dataclass(frozen=True)
class AttentionParts:
    """The modules of x + out(proj(attention(qkv(norm x)))).

    `qkv` gives query, key and value one after the other, each [heads, head_dim]. `out` is all that happens to the
    branch before it is added. Modules that a family does not have are `nn.Identity`.
    """

    norm: nn.Module
    qkv: Linear
    q_norm: nn.Module
    k_norm: nn.Module
    context_norm: nn.Module
    proj: nn.Linear
    out: nn.Module
    num_heads: int
    head_dim: int
    dropout: float
    rotary: Rotary | None = None


@dataclass(frozen=True)
class MlpParts:
    """The modules of x + out(fc2(hidden_norm(act(fc1(norm x))))); `whole` is the MLP from fc1 to fc2.

    `act` works entry by entry, or is a `Gate`. Modules that a family does not have are `nn.Identity`. An MLP of one
    linear layer has it as `fc2`; its `fc1` and `act` are `nn.Identity`.
    """

    norm: nn.Module
    fc1: Linear | nn.Identity
    act: nn.Module
    hidden_norm: nn.Module
    fc2: nn.Linear
    whole: nn.Module
    out: nn.Module


@dataclass(frozen=True)
class BlockParts:
    """One pre-norm block: its attention part and its MLP part; a part that is None adds nothing.

    `whole` is the untouched block, called where nothing is pruned; where its attention has a `rotary`, it takes the
    rotary's table as `rope`.
    """

    whole: nn.Module
    attention: AttentionParts | None
    mlp: MlpParts | None


@dataclass(frozen=True)
class Classifier:
    """A linear classifier and the prefix token that it reads."""

    token: int
    linear: nn.Linear


class PrunableViT(ABC):
    """A ViT with a class token, seen part by part; an adapter sets these, then calls `__init__`.

    Attributes:
        model: The network, in eval mode and frozen.
        blocks: First to last.
        classifiers: The linear layers whose outputs are averaged into the logits; LRP starts there. None in a model
            that gives no logits: there is no class to explain then.
        outputs: What the model gives, in order; logits where an adapter says nothing.
    """

    model: nn.Module
    blocks: Sequence[BlockParts]
    classifiers: Sequence[Classifier]
    outputs: Sequence[Output] = (Output(LOGITS, OutputKind.LOGITS),)

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

        Prefix tokens stand first; the order of patches behind them is a runtime's own, and must not matter. A model
        whose head gives an embedding and no logits returns that.
        """

    def head(self, normed: Tensor, output: Output) -> Tensor:  # noqa: ARG002  (for adapters of several)
        """One of the `outputs` [batch, channels]; to be overridden where a model gives logits and an embedding.

        Tokens are no business of a head: they are what is left after the final norm.
        """
        return self.classify(normed)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device
