"""The check at the border: the user's own model, run as its owner runs it, is the reference of its adapter.

All that comes later is compared with the adapter. A model that computes something else than what the adapter reads
out of its modules would pass all of that: a subclass with a `forward` of its own, a hook that changes values, a
wrapper that scales pixels, positions that a library resamples in another way.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from exporter.errors import ModelError, reason_of
from exporter.models.base import PrunableViT, attention_half, mlp_half
from exporter.models.huggingface.instances import is_instance, results_of
from exporter.records import Output
from exporter.tensor_names import EMBEDDING, TOKENS
from exporter.vocabulary import OutputKind

# How far rounding takes two ways to compute the same, in standard deviations: as `check` has it for a runtime.
ROUNDING = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 0.2}
SUMS = 4  # roundings of the sum of tokens and branches in a block
PATCHES = "the embedding of patches"
SEED = 0
# Those whose classes users derive from.
LIBRARIES = ("exporter", "timm", "torch", "torchvision", "transformers")


@torch.inference_mode()
def check_border(vit: PrunableViT, own: nn.Module | None = None) -> None:
    """Compare an adapter, part by part and at rates of 1, with the model that it stands for, on images of noise.

    Two images suffice. What `torch.compile` wraps runs uncompiled.

    Args:
        vit: The adapter, with its weights.
        own: The model as its owner has it, in eval mode and on the adapter's device: a wrapper around the adapter's
            network, or that of another library. None: the adapter's network.

    Raises:
        ModelError: The owner's model does not run on images, its answers are not finite or have one value
            everywhere, or the adapter's differ from them beyond rounding. The message has the first block that
            differs, and the methods that a subclass overrides.
    """
    own = vit.model if own is None else own
    like, name = next(vit.model.parameters()), vit.spec.name
    noise = torch.randn(
        2, *vit.spec.preprocessing.input_size, generator=torch.Generator().manual_seed(SEED)
    )
    images = noise.to(like)
    try:
        compiled = "torch._dynamo" in sys.modules
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            expected = (
                _librarys(vit, own, images) if is_instance(own) else _own(vit, own, images)
            )
    except Exception as error:
        got = f"a {type(own).__name__} that does not run on images alone: {reason_of(error)}"
        raise ModelError(
            name, got, "a model that takes images [batch, 3, height, width]"
        ) from None
    _check_answer(name, vit.outputs[0].name, expected)
    for place, before, given in _adapters(vit, images, expected):
        if place in expected:
            difference = _difference(before, given, expected[place])
            if difference:
                got = f"{_overridden(own)}{place} {difference}"
                needed = f"the same as from this {type(own).__name__}, to rounding"
                raise ModelError(name, got, needed, "or write an adapter: docs/models.md")
    vit.faithful = True


def _adapters(
    vit: PrunableViT, images: Tensor, expected: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor | None, Tensor]]:
    """Yield what the adapter gives, each with its place and the tokens that it is added to, first to last.

    Each part takes what the owner's model gives before it, where that is known: so rounding does not add up.
    """
    tokens = vit.embed(images)
    yield PATCHES, None, tokens
    tokens = expected.get(PATCHES, tokens)
    for layer, block in enumerate(vit.blocks, start=1):
        before = tokens
        if block.attention is not None:
            tokens, _ = attention_half(block, tokens)
        tokens = mlp_half(block, tokens)
        yield _block(layer), before, tokens
        tokens = expected.get(_block(layer), tokens)
    normed = vit.norm(tokens)
    yield TOKENS, None, normed
    if vit.spec.read_tokens:
        # The pruned model computes these alone: a head that reads others must not pass.
        normed = normed.clone()
        normed[:, vit.spec.read_tokens :] = torch.nan
    sizes = None if vit.pooling is None else torch.ones_like(normed[..., 0])
    for output in dict.fromkeys((*vit.outputs, Output(EMBEDDING, OutputKind.EMBEDDING))):
        yield output.name, None, vit.head(normed, output, sizes)


def _own(vit: PrunableViT, own: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Return what a model gives that runs the adapter's own modules, by the same places."""
    found: dict[str, Tensor] = {}
    with _watched(vit, found):
        given = own(images)
    if not isinstance(given, Tensor):
        raise TypeError(f"it returns a {type(given).__name__}, not a tensor")
    network: Any = vit.model
    if hasattr(network, "forward_features"):
        found[TOKENS] = network.forward_features(images)
        found[EMBEDDING] = network.forward_head(found[TOKENS], pre_logits=True)
    return {**found, vit.outputs[0].name: given}


def _librarys(vit: PrunableViT, own: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Return what a model of Hugging Face's gives, by the same places."""
    tokens, given = results_of(own, images)
    places = (PATCHES, *map(_block, range(1, vit.spec.depth + 1)))
    if vit.outputs[0].name != EMBEDDING:
        # Of a tower with text embeddings, the projection is a part of the classes' layer.
        given.pop(EMBEDDING, None)
    return {**dict(zip(places, tokens, strict=False)), **given}


@contextmanager
def _watched(vit: PrunableViT, found: dict[str, Tensor]) -> Iterator[None]:
    """Within the `with`, the tokens before the first block and after each one are put into `found`."""

    def before(_: nn.Module, args: tuple[Any, ...]) -> None:
        found[PATCHES] = args[0]

    def after(place: str) -> Any:
        return lambda _, __, given: found.update({place: given})

    with ExitStack() as hooks:
        hooks.enter_context(vit.blocks[0].whole.register_forward_pre_hook(before))
        for layer, block in enumerate(vit.blocks, start=1):
            hooks.enter_context(block.whole.register_forward_hook(after(_block(layer))))
        yield


def _block(layer: int) -> str:
    return f"block {layer}"


def _check_answer(name: str, output: str, answers: Mapping[str, Tensor]) -> None:
    """Refuse what no later step could use: untrained or broken weights."""
    values = answers.get(output)
    if values is None:
        return
    is_finite = bool(values.isfinite().all())
    if not is_finite or values.min() == values.max():
        got = f"{output} with {'one value everywhere' if is_finite else 'NaN or infinity'}"
        raise ModelError(name, got, "weights that tell images apart", "are they trained?")


def _difference(before: Tensor | None, given: Tensor, expected: Tensor) -> str:
    """Return how values differ, in words; "" for no more than rounding.

    The unit is the standard deviation of what is expected, or of what a block adds to its tokens: beside large
    tokens a wrong branch would not be seen. The sum of both is rounded, too.
    """
    if given.shape != expected.shape:
        return f"of shape {list(given.shape)} in place of {list(expected.shape)}"
    unit, kind = (
        (expected if before is None else expected - before).std(),
        torch.finfo(expected.dtype),
    )
    of_sum = 0 if before is None else SUMS * kind.eps * expected.abs()
    largest = float(
        (((given - expected).abs() - of_sum).clamp_min(0) / unit.clamp_min(kind.tiny)).max()
    )
    return (
        ""
        if largest <= ROUNDING[expected.dtype]
        else f"differs by up to {largest:.2g} standard deviations"
    )


def _overridden(own: nn.Module) -> str:
    """Name the methods that a user's class, or the instance itself, has in place of the library's."""
    bases = [base for base in type(own).__mro__ if base.__module__.split(".")[0] in LIBRARIES]
    users = [
        each
        for each in type(own).__mro__
        if each.__module__.split(".")[0] not in (*LIBRARIES, "builtins")
    ]
    names = [
        name
        for place in (vars(own), *map(vars, users))
        for name, value in place.items()
        if inspect.isroutine(value)
        and not name.startswith("__")
        and any(hasattr(base, name) for base in bases)
    ]
    return f"{', '.join(dict.fromkeys(names))} of its own: " if names else ""
