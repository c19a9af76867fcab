"""Derive a model's ModelSpec from its adapter, without any numbers given by hand; choose its outputs by name."""

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from exporter.core.base.errors import ModelError, reason_of
from exporter.core.base.records import BlockMacs, ModelSpec, Output, Preprocessing
from exporter.core.base.tensor_names import EMBEDDING, GRID, TOKENS, layer_name
from exporter.core.base.vocabulary import (
    PROBLEM_TYPES,
    CropMode,
    CropRounding,
    Interpolation,
    OutputKind,
)
from exporter.core.vit.parts import AttentionPooling, Linear
from exporter.core.vit.protocol import AttentionParts, BlockParts, PrunableViT

DEFAULT_ALPHA = 0.15  # STAR's value for DeiT

# An image is resized to the input size divided by crop_pct: a smaller share would fill the memory.
LEAST_CROP = 0.1
# Pixels divided by a smaller deviation would leave the range of fp32 within the model.
# No set of values from 0 to 1 deviates by 1: a larger one than the second is of another scale, as of 0 to 255.
LEAST_STD, MOST_STD = 1e-4, 10
# The outputs that any model can give.
NAMES = {
    OutputKind.EMBEDDING: EMBEDDING,
    OutputKind.TOKENS: TOKENS,
    OutputKind.GRID: GRID,
}
TOKEN_KINDS = (OutputKind.TOKENS, OutputKind.GRID)
LAYER = re.compile(r"layer:(-?\d+)")


def spec_of(
    vit: PrunableViT,
    name: str,
    *,
    grid: tuple[int, int],
    num_prefix_tokens: int,
    preprocessing: Preprocessing,
    patch_head: Linear | None = None,
    default_alpha: float = DEFAULT_ALPHA,
) -> ModelSpec:
    """Return the spec of a ViT whose `model`, `blocks`, `classifiers`, `outputs`, `embed` and `classify` are set.

    Args:
        vit: The adapter.
        name: The model's name in artefacts.
        grid: Rows and columns of patches.
        num_prefix_tokens: Tokens before the first patch.
        preprocessing: The conversion of an image file to the model's input.
        patch_head: A linear layer that reads every surviving patch.
        default_alpha: Weight of the intra-layer score where the user gives none.
    """
    if min(grid) < 1:
        got = f"a grid of {grid[0]} × {grid[1]} patches"
        raise ModelError(name, got, "images of one patch at least")
    attention = _attention_parts(vit.blocks, name)[0]
    dim, num_patches = attention.proj.out_features, grid[0] * grid[1]
    if attention.num_heads * attention.head_dim != dim:
        got = f"{attention.num_heads} heads of {attention.head_dim} channels in {dim}"
        raise ModelError(name, got, "heads that together are as wide as the tokens")
    outputs, head_macs = _heads_of(
        vit, vit.outputs, dim, num_prefix_tokens + num_patches
    )
    patch_head_macs = 0 if patch_head is None else _weights(patch_head)
    if vit.pooling is not None:
        patch_head_macs = vit.pooling.token_macs
    spec = ModelSpec(
        name=name,
        dim=dim,
        num_heads=attention.num_heads,
        num_prefix_tokens=num_prefix_tokens,
        grid=grid,
        embed_macs=_embedding_macs(vit, preprocessing, num_prefix_tokens + num_patches),
        blocks=tuple(_block_macs(block) for block in vit.blocks),
        head_macs=head_macs - patch_head_macs * num_patches,
        preprocessing=preprocessing,
        outputs=outputs,
        patch_head_macs=patch_head_macs,
        default_alpha=default_alpha,
        num_class_tokens=_class_tokens(vit, name),
        probe_rows=vit.pooling.rows if isinstance(vit.pooling, AttentionPooling) else 0,
    )
    return replace(spec, read_tokens=_tokens_read(vit, outputs, spec))


def _tokens_read(vit: PrunableViT, outputs: Sequence[Output], spec: ModelSpec) -> int:
    """Return `ModelSpec.read_tokens`: the class tokens where they are all that the outputs read, else 0.

    Heads that pool have no class token, others that read patches do multiply-adds for each, and one that reads a
    further token finds none here; the outputs of other kinds are the tokens themselves. What a head adds up without
    multiply-adds, `exporter.models.border` finds.
    """
    gives_tokens = any(output.kind in TOKEN_KINDS for output in outputs)
    if gives_tokens or spec.patch_head_macs or not spec.num_class_tokens:
        return 0
    try:
        _heads_of(vit, outputs, spec.dim, spec.num_class_tokens)
    except IndexError:
        return 0
    return spec.num_class_tokens


def with_blocks(spec: ModelSpec, blocks: Sequence[BlockParts]) -> ModelSpec:
    """Return the spec of the same model with other blocks, of which some may lack a part."""
    _attention_parts(blocks, spec.name)
    return replace(spec, blocks=tuple(_block_macs(block) for block in blocks))


def preprocessing_from(
    config: Mapping[str, Any], size: tuple[int, int]
) -> Preprocessing:
    """Return the preprocessing of a config with timm's keys.

    Args:
        config: `interpolation`, `mean`, `std`, `crop_pct`, `crop_mode` and, if it is not timm's, `crop_rounding`.
        size: Height and width of the model's input in pixels.
    """
    try:
        preprocessing = Preprocessing(
            input_size=(3, size[0], size[1]),
            interpolation=Interpolation.named(str(config["interpolation"])),
            mean=_of_channels(config["mean"]),
            std=_of_channels(config["std"]),
            crop_pct=_number(config["crop_pct"]),
            crop_mode=CropMode.named(str(config["crop_mode"])),
            crop_rounding=CropRounding.named(
                str(config.get("crop_rounding", CropRounding.EVEN))
            ),
        )
    except (TypeError, ValueError, OverflowError) as error:
        expected = (
            "numbers, three for mean and for std, e.g. mean=(0.5,0.5,0.5) crop_pct=1.0"
        )
        raise _wrong(reason_of(error), expected) from None
    share, mean, std = preprocessing.crop_pct, preprocessing.mean, preprocessing.std
    if not LEAST_CROP <= share <= 1:
        raise _wrong(f"crop_pct={share}", f"a share in [{LEAST_CROP}, 1]")
    if not LEAST_STD <= min(std) <= max(std) <= MOST_STD:
        limits = f"deviations on a scale from 0 to 1, from {LEAST_STD} to {MOST_STD}"
        raise _wrong(f"std={std}", limits)
    if not 0 <= min(mean) <= max(mean) <= 1:
        raise _wrong(f"mean={mean}", "means of channels on a scale from 0 to 1")
    return preprocessing


def _wrong(got: str, expected: str) -> ModelError:
    return ModelError("preprocessing", got, expected)


def crop_share(size: tuple[int, int], scaled: tuple[int, int]) -> float:
    """Return the `crop_pct` of images that are resized to `scaled`, and cropped to `size`.

    Raises:
        ValueError: The crop is larger, or no share gives both sides.
    """
    smallest = min(side / full for side, full in zip(size, scaled, strict=True))
    # 224 / (224 / 242) is less than 242
    for share in (smallest, math.nextafter(smallest, 0)):
        if share <= 1 and tuple(math.floor(side / share) for side in size) == scaled:
            return share
    raise ValueError("{} × {} pixels cropped to {} × {}".format(*scaled, *size))


def _number(value: Any) -> float:
    if isinstance(value, bool | str):
        raise TypeError(f"{value!r}")
    return float(value)


def _of_channels(values: Any) -> tuple[float, ...]:
    # The letters of a text are no channels.
    numbers = tuple(map(_number, [values] if isinstance(values, str) else values))
    if len(numbers) != 3:
        raise ValueError(f"{len(numbers)} numbers")
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"{numbers}")
    return numbers


def _attention_parts(blocks: Sequence[BlockParts], name: str) -> list[AttentionParts]:
    """Return the existing attention parts, all of one size: passes and plugins support one head shape per model."""
    parts = [block.attention for block in blocks if block.attention is not None]
    if not parts:
        expected = "one at least: by it patches are scored"
        raise ModelError(name, "no block with attention", expected)
    sizes = {
        (
            part.proj.out_features,
            part.num_heads,
            part.head_dim,
            _weights(part.qkv, part.proj),
        )
        for part in parts
    }
    if len(sizes) > 1:
        expected = "heads and channels that are alike in all blocks"
        raise ModelError(name, "attention of different sizes", expected)
    return parts


def _class_tokens(vit: PrunableViT, name: str) -> int:
    """Return how many tokens classify; without a classifier the first one is taken for the class token."""
    if vit.pooling is not None:
        return 0
    read = {classifier.token for classifier in vit.classifiers}
    tokens = sorted(token for token in read if token is not None)
    if tokens != list(range(len(tokens))):
        got = f"classifiers that read tokens {', '.join(map(str, tokens))}"
        raise ModelError(name, got, "the class tokens before all others, from token 0")
    return max(1, len(tokens))


def _block_macs(block: BlockParts) -> BlockMacs:
    attention, macs = block.attention, 0
    if attention is not None:
        macs = _weights(attention.qkv, attention.proj)
    mlp_macs = sum(_weights(part.fc1, part.fc2) for part in block.token_wise)
    return BlockMacs(attention_token_macs=macs, mlp_token_macs=mlp_macs)


def _weights(*linears: Linear | nn.Identity) -> int:
    """Count multiply-adds for one token: one per weight."""
    return sum(
        linear.weight.numel()
        for linear in linears
        if not isinstance(linear, nn.Identity)
    )


@torch.no_grad()
def _heads_of(
    vit: PrunableViT, outputs: Sequence[Output], dim: int, tokens: int
) -> tuple[tuple[Output, ...], int]:
    """Return outputs with their channels, and the multiply-adds of their heads on so many tokens of one image."""
    normed = next(vit.model.parameters()).new_zeros(1, tokens, dim)
    named, macs, pooling = [], 0, vit.pooling
    for output in outputs:
        if output.kind in TOKEN_KINDS:
            named.append(replace(output, channels=dim))
            continue
        with FlopCounterMode(display=False) as counter:
            pools = pooling is not None
            values = (
                vit.after_pooling(normed[:, 0], output)
                if pools
                else vit.head(normed, output)
            )
        named.append(replace(output, channels=values.shape[-1]))
        macs += counter.get_total_flops() // 2
        if pooling is not None:
            # In closed form: the counter sees attention on some devices only.
            macs += pooling.macs + (tokens - pooling.skipped) * pooling.token_macs
    return tuple(named), macs


@torch.no_grad()
def _embedding_macs(vit: PrunableViT, preprocessing: Preprocessing, tokens: int) -> int:
    """Count multiply-adds of convolutions and matrix products while one image is embedded as so many tokens."""
    _, height, width = preprocessing.input_size
    images = next(vit.model.parameters()).new_zeros(1, 3, height, width)
    try:
        with FlopCounterMode(display=False) as counter:
            embedded = vit.embed(images)
    except (RuntimeError, AssertionError) as error:
        got = f"an image of {height} × {width}: {reason_of(error)}"
        raise ModelError("input_size", got, "a size that the model takes") from None
    if embedded.shape[1] != tokens:
        got = f"{embedded.shape[1]} tokens of an image of {height} × {width}"
        hint = "give a size that is a multiple of the patches'"
        raise ModelError("input_size", got, f"{tokens}, as its grid has", hint)
    return counter.get_total_flops() // 2


def with_outputs(vit: PrunableViT, names: Sequence[str]) -> PrunableViT:
    """Return the same model with other outputs, without the blocks that none of them depends on.

    The weights are shared. The spec counts the MACs of the blocks and of the heads that are left.

    Args:
        vit: The model; it does not change.
        names: In the order of the outputs; without any, the model is returned as it is. Each is one of the model's
            own outputs, `embedding` (its own, else what its classifiers read), `tokens` (after the final norm),
            `grid` (a token for every patch, `exporter.core.prune.tokens`), or `layer:N`: the tokens that block N
            gives, 1-based, or counted from the end, -1 being the last.

    Raises:
        ModelError: The model has no such output, or one is named twice.
    """
    if not names:
        return vit
    outputs = [_named(vit, name) for name in names]
    if len({output.name for output in outputs}) < len(outputs):
        raise ModelError(
            f"{vit.spec.name}: outputs", ", ".join(names), "each output once"
        )
    chosen = copy.copy(vit)
    chosen.blocks = vit.blocks[
        : max(output.layer or len(vit.blocks) for output in outputs)
    ]
    spec = with_blocks(vit.spec, chosen.blocks)
    tokens = spec.num_prefix_tokens + spec.num_patches
    named, macs = _heads_of(vit, outputs, spec.dim, tokens)
    # One patch more costs what the heads do that read every patch.
    patch_head_macs = macs - _heads_of(vit, outputs, spec.dim, tokens - 1)[1]
    spec = replace(
        spec,
        outputs=named,
        head_macs=macs - patch_head_macs * spec.num_patches,
        patch_head_macs=patch_head_macs,
    )
    spec = replace(spec, read_tokens=_tokens_read(vit, named, spec))
    chosen.spec = spec if spec.head else replace(spec, class_names=())
    return chosen


def with_head(vit: PrunableViT, kind: OutputKind) -> PrunableViT:
    """Return the same model, the numbers of whose head are of a kind, which names the output; weights are shared.

    Raises:
        ModelError: There is no head.
    """
    head = vit.spec.head
    if kind == (OutputKind.LOGITS if head is None else head.kind):
        return vit
    if head is None:
        got, expected = f"{kind} of a tower", "a model with a head"
        raise ModelError(f"{vit.spec.name}: head", got, expected)

    def read(outputs: Sequence[Output]) -> tuple[Output, ...]:
        return tuple(
            replace(output, name=str(kind), kind=kind)
            if output.kind in PROBLEM_TYPES
            else output
            for output in outputs
        )

    chosen = copy.copy(vit)
    chosen.outputs = read(vit.outputs)
    chosen.spec = replace(vit.spec, outputs=read(vit.spec.outputs))
    return chosen


def as_it_came(vit: PrunableViT) -> PrunableViT:
    """Return the same model, which computes all tokens to the end, read or not; the weights are shared."""
    chosen = copy.copy(vit)
    chosen.spec = vit.spec.as_it_came
    return chosen


def asked_as(output: Output) -> str:
    """Return the name that `with_outputs` takes for an output."""
    return f"layer:{output.layer}" if output.layer else output.name


def _named(vit: PrunableViT, name: str) -> Output:
    known = {output.name: output for output in vit.outputs}
    for kind, usual_name in NAMES.items():
        known.setdefault(usual_name, Output(usual_name, kind))
    if name in known:
        return known[name]
    depth, match = len(vit.blocks), LAYER.fullmatch(name)
    layer = int(match[1]) if match else 0
    if not 1 <= abs(layer) <= depth:
        layers = f"layer:N with N from 1 to {depth} or from -{depth} to -1"
        expected = f"{', '.join(known)}, or {layers}"
        raise ModelError(f"{vit.spec.name}: outputs", repr(name), expected)
    if layer < 0:
        layer += depth + 1
    return Output(layer_name(layer), OutputKind.TOKENS, layer=layer)
