"""Choose by name what a model gives: logits, an embedding, its tokens, or the tokens of a block in between."""

import copy
import re
from collections.abc import Sequence
from dataclasses import replace

from exporter.errors import ModelError
from exporter.models.base import PrunableViT
from exporter.models.spec import heads_of, tokens_read, with_blocks
from exporter.records import Output
from exporter.tensor_names import EMBEDDING, GRID, TOKENS, layer_name
from exporter.vocabulary import OutputKind

__all__ = ["as_it_came", "asked_as", "with_outputs"]

LAYER = re.compile(r"layer:(-?\d+)")


def with_outputs(vit: PrunableViT, names: Sequence[str]) -> PrunableViT:
    """Return the same model with other outputs, without the blocks that none of them depends on.

    The weights are shared. The spec counts the MACs of the blocks and of the heads that are left.

    Args:
        vit: The model; it does not change.
        names: In the order of the outputs; without any, the model is returned as it is. Each is one of the model's
            own outputs, `embedding` (its own, else what its classifiers read), `tokens` (after the final norm),
            `grid` (a token for every patch, `exporter.pruning.tokens`), or `layer:N`: the tokens that block N
            gives, 1-based, or counted from the end, -1 being the last.

    Raises:
        ModelError: The model has no such output, or one is named twice.
    """
    if not names:
        return vit
    outputs = [_named(vit, name) for name in names]
    if len({output.name for output in outputs}) < len(outputs):
        raise ModelError(f"{vit.spec.name}: outputs", ", ".join(names), "each output once")
    chosen = copy.copy(vit)
    chosen.blocks = vit.blocks[: max(output.layer or len(vit.blocks) for output in outputs)]
    spec = with_blocks(vit.spec, chosen.blocks)
    tokens = spec.num_prefix_tokens + spec.num_patches
    named, macs = heads_of(vit, outputs, spec.dim, tokens)
    # One patch more costs what the heads do that read every patch.
    each = macs - heads_of(vit, outputs, spec.dim, tokens - 1)[1]
    spec = replace(
        spec,
        outputs=named,
        head_macs=macs - each * spec.num_patches,
        patch_head_macs=each,
    )
    spec = replace(spec, read_tokens=tokens_read(vit, named, spec))
    chosen.spec = spec if spec.num_classes else replace(spec, class_names=())
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
    own = next((output for output in vit.outputs if output.name == name), None)
    if own is not None:
        return own
    if name == EMBEDDING:
        return Output(EMBEDDING, OutputKind.EMBEDDING)
    if name == TOKENS:
        return Output(TOKENS, OutputKind.TOKENS)
    if name == GRID:
        return Output(GRID, OutputKind.GRID)
    depth, found = len(vit.blocks), LAYER.fullmatch(name)
    layer = int(found[1]) if found else 0
    if not 1 <= abs(layer) <= depth:
        known = dict.fromkeys((*(output.name for output in vit.outputs), EMBEDDING, TOKENS, GRID))
        expected = f"{', '.join(known)}, or layer:N with N from 1 to {depth} or from -{depth} to -1"
        raise ModelError(f"{vit.spec.name}: outputs", repr(name), expected)
    layer += depth + 1 if layer < 0 else 0
    return Output(layer_name(layer), OutputKind.TOKENS, layer=layer)
