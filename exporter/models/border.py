"""The check at the border: the user's own model, run as its owner runs it, is the reference of its adapter.

All that comes later is compared with the adapter. A model that computes something else than what the adapter reads
out of its modules would pass all of that: a subclass with a `forward` of its own, a hook that changes values, a
wrapper that scales pixels, positions that a library resamples in another way.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from exporter.core.base.errors import ModelError, reason_of
from exporter.core.base.records import Output
from exporter.core.base.tensor_names import EMBEDDING, LOGITS, TOKENS
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit.protocol import (
    BlockParts,
    PrunableViT,
    add_attention,
    attention_half,
    mlp_half,
    project,
)
from exporter.models.huggingface.instances import (
    is_instance,
    named_results,
    results_of,
)

# How far rounding takes two ways to compute the same, in standard deviations: as `check` has it for a runtime.
ROUNDED_WITHIN = {
    torch.float64: 1e-4,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 0.2,
}
SUMS = 4  # roundings of the sum of tokens and branches in a block
PATCHES = "the embedding of patches"
WRITE = "or write an adapter: docs/models.md"
SEED = 0
# Those whose classes users derive from.
LIBRARIES = ("exporter", "timm", "torch", "torchvision", "transformers")


@torch.inference_mode()
def check_border(vit: PrunableViT, model: nn.Module | None = None) -> None:
    """Compare an adapter, part by part and at rates of 1, with the model that it stands for, on images of noise.

    Two images suffice. What `torch.compile` wraps runs uncompiled.

    Args:
        vit: The adapter, with its weights.
        model: As its owner has it, in eval mode and on the adapter's device: a wrapper around the adapter's
            network, or that of another library. None: the adapter's network.

    Raises:
        ModelError: The owner's model does not run on images, its outputs are not finite or have one value
            everywhere, or the adapter's differ from them beyond rounding. The message has the first block that
            differs, and the methods that a subclass overrides. Or a part beside attention reads other tokens.
    """
    model, name = vit.model if model is None else model, vit.spec.name
    generator = torch.Generator().manual_seed(SEED)
    noise = torch.randn(2, *vit.spec.preprocessing.input_size, generator=generator)
    images = noise.to(next(vit.model.parameters()))
    try:
        expected = _expected(vit, model, images)
    except Exception as error:  # of whatever the owner's model calls
        got = f"a {type(model).__name__} that does not run on images alone: {reason_of(error)}"
        needed = "a model that takes images [batch, 3, height, width]"
        raise ModelError(name, got, needed) from None
    _check_output(name, vit.outputs[0].name, expected)
    for part in _parts(vit, images, expected):
        if part.place not in expected:
            continue
        if difference := _difference(part, expected[part.place]):
            got = f"{_overridden(model)}{part.place} {difference}"
            needed = f"the same as from this {type(model).__name__}, to rounding"
            raise ModelError(name, got, needed, WRITE)
    _check_token_wise(vit, vit.embed(images))
    vit.compared = [*vit.model.modules()]


@dataclass(frozen=True, eq=False)
class Part:
    """What a part of the adapter gives at its place, and the tokens that it is added to, None for none.

    `apart` are numbers each of which is in a unit of its own.
    """

    place: str
    values: Tensor
    before: Tensor | None = None
    apart: bool = False


def _parts(
    vit: PrunableViT, images: Tensor, expected: Mapping[str, Tensor]
) -> Iterator[Part]:
    """Yield what the adapter gives, first to last.

    Each part takes what the owner's model gives before it, where that is known: so rounding does not add up.
    """
    tokens = vit.embed(images)
    yield Part(PATCHES, tokens)
    tokens = expected.get(PATCHES, tokens)
    for layer, block in enumerate(vit.blocks, start=1):
        before = tokens
        if block.attention is not None:
            tokens, _ = attention_half(block, tokens)
        tokens = mlp_half(block, tokens)
        yield Part(_block(layer), tokens, before)
        tokens = expected.get(_block(layer), tokens)
    normed = vit.norm(tokens)
    yield Part(TOKENS, normed)
    if vit.spec.read_tokens:
        # The pruned model computes these alone: a head that reads others must not pass.
        normed = normed.clone()
        normed[:, vit.spec.read_tokens :] = torch.nan
    sizes = None if vit.pooling is None else torch.ones_like(normed[..., 0])
    for output in dict.fromkeys(
        (*vit.outputs, Output(EMBEDDING, OutputKind.EMBEDDING))
    ):
        is_value = output.kind == OutputKind.VALUES
        yield Part(output.name, vit.head(normed, output, sizes), apart=is_value)


def _check_token_wise(vit: PrunableViT, tokens: Tensor) -> None:
    """Refuse a part beside attention that gives a token another value where other tokens are left out.

    A pruned model leaves them out: a convolution over the grid would then join patches that are not neighbours.
    """
    for place, part, values in _beside_attention(vit, tokens):
        try:
            fewer = Part(place, part(values[:, ::2]))
            difference = _difference(fewer, part(values)[:, ::2])
        except RuntimeError as error:  # of a shape that has the number of tokens in it
            difference = reason_of(error)
        if difference:
            got = f"{place}: what it gives a token, without some of the others, {difference}"
            raise ModelError(vit.spec.name, got, "layers that read one token", WRITE)


def _beside_attention(
    vit: PrunableViT, tokens: Tensor
) -> Iterator[tuple[str, Callable[[Tensor], Tensor], Tensor]]:
    """Yield the parts of each block that read one token at a time, and tokens for them, first to last."""
    for layer, block in enumerate(vit.blocks, start=1):
        if block.attention is not None:
            yield f"{_block(layer)}, before attention", partial(project, block), tokens
            with_context = partial(_with_context, block)
            yield f"{_block(layer)}, behind attention", with_context, tokens
            tokens, _ = attention_half(block, tokens)
        yield f"{_block(layer)}, MLP", partial(mlp_half, block), tokens
        tokens = mlp_half(block, tokens)
    yield "the final norm", vit.norm, tokens


def _with_context(block: BlockParts, tokens: Tensor) -> Tensor:
    return add_attention(block, tokens, tokens)


def _expected(vit: PrunableViT, model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Return what the owner's model gives, by the places of the adapter's parts."""
    is_compiled = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
        if is_instance(model):
            return _library_values(vit, model, images)
        return _own_values(vit, model, images)


def _own_values(
    vit: PrunableViT, model: nn.Module, images: Tensor
) -> dict[str, Tensor]:
    """Return what a model gives that runs the adapter's own modules."""
    values: dict[str, Tensor] = {}
    with _watched(vit, values):
        output = model(images)
    network: Any = vit.model
    if hasattr(network, "forward_features"):
        values[TOKENS] = network.forward_features(images)
        values[EMBEDDING] = network.forward_head(values[TOKENS], pre_logits=True)
    # A wrapper may give what the library's model in it gives.
    output = getattr(output, "logits", output)
    if isinstance(output, Tensor):
        return {**values, vit.outputs[0].name: output}
    results = named_results(output) if isinstance(output, Mapping) else {}
    results = _by_output(vit, results)
    if len(results) > 1:
        results.pop(TOKENS, None)  # CLIP's are without the final norm
    if not results:
        raise TypeError(f"it returns a {type(output).__name__}, not a tensor")
    return {**values, **results}


def _library_values(
    vit: PrunableViT, model: nn.Module, images: Tensor
) -> dict[str, Tensor]:
    """Return what a model of Hugging Face's gives."""
    tokens, results = results_of(model, images)
    places = (PATCHES, *map(_block, range(1, vit.spec.depth + 1)))
    return {**dict(zip(places, tokens, strict=False)), **_by_output(vit, results)}


def _by_output(vit: PrunableViT, results: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what a model of Hugging Face's gives by the names of the adapter's outputs."""
    values = dict(results)
    if vit.outputs[0].name != EMBEDDING:
        # Of a tower with text embeddings, the projection is a part of the classes' layer.
        values.pop(EMBEDDING, None)
    if LOGITS in values:
        values[vit.outputs[0].name] = values.pop(LOGITS)
    return values


@contextmanager
def _watched(vit: PrunableViT, values: dict[str, Tensor]) -> Iterator[None]:
    """Within the `with`, the tokens before the first block and after each one are put into `values`.

    Calls are counted, not modules: a block may be there twice.
    """
    calls = count(1)

    def before(_: nn.Module, args: tuple[Any, ...]) -> None:
        values.setdefault(PATCHES, args[0])

    def after(_: nn.Module, __: tuple[Any, ...], tokens: Tensor) -> None:
        values[_block(next(calls))] = tokens

    with ExitStack() as hooks:
        hooks.enter_context(vit.blocks[0].whole.register_forward_pre_hook(before))
        for block in dict.fromkeys(block.whole for block in vit.blocks):
            hooks.enter_context(block.register_forward_hook(after))
        yield


def _block(layer: int) -> str:
    return f"block {layer}"


def _check_output(name: str, output: str, expected: Mapping[str, Tensor]) -> None:
    """Refuse what no later step could use: untrained or broken weights."""
    values = expected.get(output)
    if values is None:
        return
    is_finite = bool(values.isfinite().all())
    if not is_finite or values.min() == values.max():
        got = f"{output} with {'one value everywhere' if is_finite else 'NaN or infinity'}"
        raise ModelError(
            name, got, "weights that tell images apart", "are they trained?"
        )


def _difference(part: Part, expected: Tensor) -> str:
    """Return how values differ, in words; "" for no more than rounding.

    The unit is the standard deviation of what is expected, or of what a block adds to its tokens: beside large
    tokens a wrong branch would not be seen. The sum of both is rounded, too. Of a value it is that value's size:
    beside a large value a wrong small one would not be seen.
    """
    if part.values.shape != expected.shape:
        return f"of shape {list(part.values.shape)} in place of {list(expected.shape)}"
    precision = torch.finfo(expected.dtype)
    difference, unit = (part.values - expected).abs(), expected.std()
    if part.before is not None:
        unit = (expected - part.before).std()
        difference = (difference - SUMS * precision.eps * expected.abs()).clamp_min(0)
    if part.apart:
        unit = expected.square().mean(0).sqrt()
    largest = float((difference / unit.clamp_min(precision.tiny)).max())
    if largest <= ROUNDED_WITHIN[expected.dtype]:
        return ""
    return f"differs by up to {largest:.2g} standard deviations"


def _overridden(model: nn.Module) -> str:
    """Name the methods that a user's class, or the instance itself, has in place of the library's."""
    methods: dict[str, object] = dict(vars(model))
    bases = []
    for base in type(model).__mro__:
        library = base.__module__.partition(".")[0]
        if library in LIBRARIES:
            bases.append(base)
        elif library != "builtins":
            methods |= vars(base)
    names = [
        name
        for name, value in methods.items()
        if inspect.isroutine(value)
        and not name.startswith("__")
        and any(hasattr(base, name) for base in bases)
    ]
    return f"{', '.join(names)} of its own: " if names else ""
