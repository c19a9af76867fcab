"""The interface of a ViT for all later stages: its embedding, its blocks part by part, its classifier.

A family is one adapter that fills in these parts. Later stages do not depend on the family.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exporter.models.parts import Linear, Rotary
from exporter.models.pooling import Pooling
from exporter.records import ModelSpec, Output
from exporter.tensor_names import LOGITS
from exporter.vocabulary import OutputKind

__all__ = ["AttentionParts", "BlockParts", "Classifier", "MlpParts", "PrunableViT"]


@dataclass(frozen=True)
class AttentionParts:
    """The modules of x + out(proj(attention(qkv(norm x)))).

    `qkv` gives query, key and value concatenated, each [heads, head_dim]. `out` covers all that is applied to the
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

    `act` is element-wise, or a `Gate`. Modules that a family does not have are `nn.Identity`. An MLP of one linear
    layer has it as `fc2`; its `fc1` and `act` are `nn.Identity`. One without any is x + out(norm x).
    """

    norm: nn.Module
    fc1: Linear | nn.Identity
    act: nn.Module
    hidden_norm: nn.Module
    fc2: nn.Linear | nn.Identity
    whole: nn.Module
    out: nn.Module


@dataclass(frozen=True)
class BlockParts:
    """One pre-norm block: its attention part and its MLP part; a part that is None adds nothing.

    `whole` is the original block, called where nothing is pruned; where its attention has a `rotary`, it takes the
    rotary's table as `rope`. `stand_in` is what is left of an attention that was replaced by the identity; it comes
    before the MLP.
    """

    whole: nn.Module
    attention: AttentionParts | None
    mlp: MlpParts | None
    stand_in: MlpParts | None = None

    @property
    def token_wise(self) -> tuple[MlpParts, ...]:
        """The parts after attention, in order: each reads its tokens one by one."""
        return tuple(part for part in (self.stand_in, self.mlp) if part is not None)


@dataclass(frozen=True)
class Classifier:
    """A linear classifier and the prefix token that it reads, None for the pooled patches."""

    token: int | None
    linear: nn.Linear


class PrunableViT(ABC):
    """A ViT split into parts; an adapter sets these attributes, then calls `__init__`.

    Attributes:
        model: The network, in eval mode and frozen.
        blocks: First to last.
        classifiers: The linear layers whose outputs are averaged into the logits; LRP starts there, and the tokens
            that they read score the patches. Empty for a model without logits, which has no class to explain: its
            first token scores, unless it pools the patches.
        pooling: How a head that reads no class token pools the patches; None for one that does. `classify` then
            pools as the model does, and is not called with padding or merged tokens: `classify_pooled` is.
        outputs: The model's own outputs, in order; logits unless an adapter sets them. The `spec` has those
            that it gives: `exporter.models.outputs` chooses others.
        faithful: Whether `exporter.models.border` has found that it computes what its model computes.
    """

    model: nn.Module
    blocks: Sequence[BlockParts]
    classifiers: Sequence[Classifier]
    pooling: Pooling | None = None
    outputs: Sequence[Output] = (Output(LOGITS, OutputKind.LOGITS),)
    faithful: bool = False

    def __init__(self, model: nn.Module, spec: ModelSpec, weights_sha256: str) -> None:
        self.model = model
        self.spec = spec
        self.weights_sha256 = weights_sha256

    def __repr__(self) -> str:
        spec = self.spec
        shape = f"{spec.depth} blocks, {spec.num_patches} patches, {spec.dim} channels"
        return f"<{type(self).__name__} {spec.name}: {shape}>"

    @abstractmethod
    def embed(self, images: Tensor) -> Tensor:
        """Embed images [batch, 3, H, W] as the tokens of block 1, [batch, prefix + patches, dim]."""

    @abstractmethod
    def norm(self, tokens: Tensor) -> Tensor:
        """Apply the final norm of the trunk; the shape stays."""

    def features(self, normed: Tensor) -> Tensor:
        """Return the input of the classifiers, after any norm in the head: of tokens or pooled, [..., dim]."""
        return normed

    @abstractmethod
    def classify(self, normed: Tensor) -> Tensor:
        """Apply the model's own head to [batch, tokens, dim] after the final norm; return logits [batch, classes].

        Prefix tokens come first; the order of the patches after them differs between runtimes and must not matter.
        A model whose head gives an embedding instead of logits returns the embedding.
        """

    def classify_pooled(self, pooled: Tensor) -> Tensor:
        """Apply the rest of the head to pooled patches [batch, channels]; needed where there is a `pooling`."""
        raise NotImplementedError

    def pooled(self, normed: Tensor) -> Tensor:
        """Return the embedding [batch, channels] of a model with logits: the mean of what its classifiers read.

        `normed` [batch, tokens, dim] is as in `classify`.
        """
        return self.features(normed)[:, : self.spec.num_class_tokens].mean(dim=1)

    def head(self, normed: Tensor, output: Output, sizes: Tensor | None = None) -> Tensor:
        """Return an output [batch, channels]; override it for an embedding that is not what the classifiers read.

        A token output needs no head.

        Args:
            normed: Tokens after the final norm.
            output: Which one.
            sizes: How many patches each token stands for, 0 for padding; None where each stands for one.
        """
        if self.pooling is not None and sizes is not None:
            return self.after_pooling(self.pooling(normed, sizes), output)
        return self.pooled(normed) if self._is_before_classifier(output) else self.classify(normed)

    def after_pooling(self, pooled: Tensor, output: Output) -> Tensor:
        """Return an output of pooled patches [batch, channels]."""
        if self._is_before_classifier(output):
            return self.features(pooled)
        return self.classify_pooled(pooled)

    def _is_before_classifier(self, output: Output) -> bool:
        """Whether an output is the embedding of a model with logits."""
        gives_logits = any(own.kind == OutputKind.LOGITS for own in self.outputs)
        return gives_logits and output.kind == OutputKind.EMBEDDING

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device
