"""The interface of a ViT for all later stages: its embedding, its blocks part by part, its classifier.

A family is one adapter that fills in these parts. Later stages do not depend on the family. A block is in two
halves: attention with what scores patches, and what reads tokens one by one, the MLP. Together they run the
operations of the original block, in the same order. A block may lack either.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.core.base.records import ModelSpec, Output
from exporter.core.base.tensor_names import LOGITS
from exporter.core.base.vocabulary import PROBLEM_TYPES, OutputKind
from exporter.core.vit.parts import Linear, Pooling, Rotary


@dataclass(frozen=True, kw_only=True)
class AttentionParts:
    """The modules of x + out(proj(attention(qkv(norm x)))).

    `qkv` gives query, key and value concatenated, each [heads, head_dim]. `out` covers all that is applied to the
    branch before it is added.
    """

    norm: nn.Module
    qkv: Linear
    q_norm: nn.Module = field(default_factory=nn.Identity)
    k_norm: nn.Module = field(default_factory=nn.Identity)
    context_norm: nn.Module = field(default_factory=nn.Identity)
    proj: nn.Linear
    out: nn.Module
    num_heads: int
    head_dim: int
    dropout: float = 0.0
    rotary: Rotary | None = None


@dataclass(frozen=True, kw_only=True)
class MlpParts:
    """The modules of x + out(fc2(hidden_norm(act(fc1(norm x))))); `whole` is the MLP from fc1 to fc2.

    `act` is element-wise, or a `Gate`. An MLP of one linear layer has it as `fc2`.
    """

    norm: nn.Module
    fc1: Linear | nn.Identity = field(default_factory=nn.Identity)
    act: nn.Module = field(default_factory=nn.Identity)
    hidden_norm: nn.Module = field(default_factory=nn.Identity)
    fc2: nn.Linear | nn.Identity = field(default_factory=nn.Identity)
    whole: nn.Module = field(default_factory=nn.Identity)
    out: nn.Module = field(default_factory=nn.Identity)


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

    An adapter is made of its network in eval mode, the model's name in artefacts, and overrides of its
    preprocessing by timm's keys. Where it cannot be pruned, that raises a ModelError, whose message says why.

    Attributes:
        model: The network, in eval mode and frozen.
        blocks: First to last.
        classifiers: The linear layers whose outputs are averaged into the logits; LRP starts there, and the tokens
            that they read score the patches. Empty for a model without logits, which has no class to explain: its
            first token scores, unless it pools the patches.
        pooling: How a head that reads no class token pools the patches; None for one that does. `classify` then
            pools as the model does, and is not called with padding or merged tokens: `classify_pooled` is.
        outputs: The model's own outputs, in order; logits unless an adapter sets them. The `spec` has those
            that it gives: `exporter.core.vit.spec` chooses others.
        compared: The modules of its model when `exporter.models.border` found that it computes the same; None
            before.
        frozen: The parameters that the model's owner had frozen; training leaves them as they are.
    """

    model: nn.Module
    blocks: Sequence[BlockParts]
    classifiers: Sequence[Classifier]
    pooling: Pooling | None = None
    outputs: Sequence[Output] = (Output(LOGITS, OutputKind.LOGITS),)
    compared: Sequence[nn.Module] | None = None
    frozen: Sequence[nn.Parameter] = ()

    def __init__(self, model: nn.Module, spec: ModelSpec) -> None:
        self.model, self.spec = model, spec

    @property
    def weights_sha256(self) -> str:
        """The digest of what it computes with now, since its owner may change the model; "" on the meta device.

        Weights do not show MLPs of two layers without an activation, which have their place in it.
        """
        weights = weights_sha256(self.model)
        linear = [
            layer
            for layer, block in enumerate(self.blocks, start=1)
            if block.mlp is not None
            and isinstance(block.mlp.act, nn.Identity)
            and not isinstance(block.mlp.fc1, nn.Identity)
        ]
        if not weights or not linear:
            return weights
        content = f"{weights} no activation in {linear}"
        return hashlib.sha256(content.encode()).hexdigest()

    def __repr__(self) -> str:
        spec = self.spec
        shape = f"{spec.depth} blocks, {spec.num_patches} patches, {spec.dim} channels"
        return f"<{type(self).__name__} {spec.name}: {shape}>"

    @abstractmethod
    def embed(self, images: Tensor) -> Tensor:
        """Embed images [batch, 3, H, W] as the tokens of block 1, [batch, prefix + patches, dim]."""

    def embed_in_training(
        self, images: Tensor
    ) -> tuple[Tensor, Int[Tensor, "b n"] | None]:
        """Return the same tokens, and the positions of the patches that patch dropout has left; None for all.

        Override it for a model that drops out patches in training.
        """
        return self.embed(images), None

    @property
    def recomputes(self) -> bool:
        """Whether its owner has set that blocks are computed once more for gradients, which saves memory."""
        return bool(getattr(self.model, "grad_checkpointing", False))

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

    def head(
        self, normed: Tensor, output: Output, sizes: Tensor | None = None
    ) -> Tensor:
        """Return an output [batch, channels]; override it for an embedding that is not what the classifiers read.

        A token output needs no head.

        Args:
            normed: Tokens after the final norm.
            output: Which one.
            sizes: How many patches each token stands for, 0 for padding; None where each stands for one.
        """
        if self.pooling is not None and sizes is not None:
            return self.after_pooling(self.pooling(normed, sizes), output)
        if self._is_before_classifier(output):
            return self.pooled(normed)
        return self.classify(normed)

    def after_pooling(self, pooled: Tensor, output: Output) -> Tensor:
        """Return an output of pooled patches [batch, channels]."""
        if self._is_before_classifier(output):
            return self.features(pooled)
        return self.classify_pooled(pooled)

    def _is_before_classifier(self, output: Output) -> bool:
        if output.kind != OutputKind.EMBEDDING:
            return False
        return any(usual.kind in PROBLEM_TYPES for usual in self.outputs)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device


def weights_sha256(model: nn.Module) -> str:
    """Hash names, dtypes, shapes and bytes of all parameters and buffers to a hex digest; "" on the meta device."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if value.is_meta:
            return ""
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(
            value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
        )
    return digest.hexdigest()


class Seen(NamedTuple):
    """What attention reads; patches are scored from it, since its probabilities stay inside a runtime's kernel.

    `query` and `key` [batch, heads, tokens, head_dim] are normed and rotated; `key_bias` [batch, tokens] is added
    to the logits of each key, None for nothing.
    """

    query: Tensor
    key: Tensor
    key_bias: Tensor | None = None

    @property
    def scale(self) -> float:
        """The factor of the logits."""
        return float(self.key.shape[-1] ** -0.5)


def whole_block(
    block: BlockParts,
    tokens: Float[Tensor, "b t d"],
    positions: Int[Tensor, "b n"] | None = None,
) -> Float[Tensor, "b t d"]:
    """Run the original block, on patches at `positions`, or on all patches where it is None."""
    if block.attention is None or block.attention.rotary is None:
        return block.whole(tokens)
    return block.whole(tokens, rope=block.attention.rotary.at(positions))


def heads(
    block: BlockParts,
    qkv: Float[Tensor, "b t three_d"],
    positions: Int[Tensor, "b n"] | None = None,
    asking: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value, each [batch, heads, tokens, head_dim], normed and rotated, without the scale.

    `asking` is how many of the first tokens, all of them prefix tokens, have a query; 0 for all.
    """
    attention = _attention(block)
    batch, tokens, _ = qkv.shape
    parts = qkv.reshape(
        batch, tokens, 3, attention.num_heads, attention.head_dim
    ).permute(2, 0, 3, 1, 4)
    query, key, value = parts.unbind(0)
    query = query[:, :, :asking] if asking else query
    query, key = attention.q_norm(query), attention.k_norm(key)
    if attention.rotary is not None:
        # Prefix tokens have no position.
        query = query if asking else attention.rotary(query, positions)
        key = attention.rotary(key, positions)
    return query, key, value


def attention_half(
    block: BlockParts,
    tokens: Float[Tensor, "b t d"],
    positions: Int[Tensor, "b n"] | None = None,
    live: Bool[Tensor, "b t"] | None = None,
    key_bias: Float[Tensor, "b t"] | None = None,
) -> tuple[Float[Tensor, "b t d"], Seen]:
    """Return x + attn(norm1 x), and what attention reads.

    Args:
        block: Its modules; it has an attention part.
        tokens: Prefix tokens, then patches.
        positions: The positions of the patches, None for all of them.
        live: Which tokens may be attended to, None for all.
        key_bias: Added to the logit of each token for every query, None for nothing.
    """
    context, seen = attend(block, project(block, tokens), positions, live, key_bias)
    return add_attention(block, tokens, context), seen


def project(
    block: BlockParts, tokens: Float[Tensor, "... d"]
) -> Float[Tensor, "... three_d"]:
    """Return each token's query, key and value, concatenated: the part of attention before tokens interact."""
    attention = _attention(block)
    return attention.qkv(attention.norm(tokens))


def attend(
    block: BlockParts,
    qkv: Float[Tensor, "b t three_d"],
    positions: Int[Tensor, "b n"] | None = None,
    live: Bool[Tensor, "b t"] | None = None,
    key_bias: Float[Tensor, "b t"] | None = None,
    *,
    asking: int = 0,
) -> tuple[Float[Tensor, "b q d"], Seen]:
    """Return the context of each token that asks, see `heads`, heads concatenated; and what attention reads."""
    attention = _attention(block)
    query, key, value = heads(block, qkv, positions, asking)
    dropout = attention.dropout if block.whole.training else 0.0
    allowed = _mask(live, key_bias)
    if allowed is not None and allowed.is_floating_point():
        # A program of `to`, even to what it is already, has to be decomposed before it is translated to ONNX.
        allowed = allowed if allowed.dtype == query.dtype else allowed.to(query.dtype)
    mask = None if allowed is None else allowed[:, None, None, :]
    context = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout
    )
    return context.transpose(1, 2).reshape(qkv.shape[0], query.shape[2], -1), Seen(
        query, key, key_bias
    )


def _mask(
    live: Bool[Tensor, "b t"] | None, key_bias: Float[Tensor, "b t"] | None
) -> Bool[Tensor, "b t"] | Float[Tensor, "b t"] | None:
    """Return which keys may be attended to, or the bias added to their logits."""
    if live is None or key_bias is None:
        return live if key_bias is None else key_bias
    return key_bias.masked_fill(~live, -torch.inf)


def add_attention(
    block: BlockParts, tokens: Float[Tensor, "... d"], context: Float[Tensor, "... d"]
) -> Float[Tensor, "... d"]:
    """Return the tokens plus their projected contexts: the part of attention after tokens have interacted."""
    attention = _attention(block)
    return tokens + attention.out(attention.proj(attention.context_norm(context)))


def mlp_half(
    block: BlockParts, tokens: Float[Tensor, "... d"]
) -> Float[Tensor, "... d"]:
    """Return x + mlp(norm2 x), or the same of each token-wise part in turn; x where the block has none."""
    for part in block.token_wise:
        tokens = tokens + part.out(part.whole(part.norm(tokens)))
    return tokens


def _attention(block: BlockParts) -> AttentionParts:
    """Return the attention part. A block without one scores nothing, so callers check for it first."""
    if block.attention is None:
        raise ValueError("a block without an attention part")
    return block.attention
