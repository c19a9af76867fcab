"""Take a module of the caller's: a copy of it with plain layers, and one line for whatever is wrong with that copy.

A layer is taken for linear if its function is: a wrapper with a branch of low rank, a mask, a parametrization.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from exporter.core.base.errors import CheckpointError, ModelError, UserError, reason_of
from exporter.core.vit.protocol import PrunableViT
from exporter.models.border import LIBRARIES, ROUNDED_WITHIN, check_border
from exporter.models.weights import check_finite

EXPECTED = "a module of parameters and of layers as their libraries have them"
MERGE = (
    "merge what is added to its layers first, e.g. merge_and_unload() of adapters; or write an "
    "adapter: docs/models.md"
)
SEED = 0
# Scales of noise on which a merged layer is compared with what it replaces, up to the largest, as far as fp16 holds
# them: what bends is not linear there.
SCALES, LARGEST = 8, 1e4


def copy_of(model: nn.Module, name: str) -> nn.Module:
    """Return a copy in eval mode, as it computes."""
    # Tensors that are computed from others cannot be copied as such; masks compute them anew in every call.
    computed = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    with in_one_line(model, name):
        return deepcopy(model, computed).eval()


def computes_in_fp32(model: nn.Module) -> bool:
    """Whether all parameters that are floating-point numbers are of 32 bits."""
    floats = (value for value in model.parameters() if value.is_floating_point())
    return all(value.dtype == torch.float32 for value in floats)


def checked(vit: PrunableViT) -> PrunableViT:
    """Return an adapter that computes what its model computes; it is compared now if nobody has done so.

    Raises:
        CheckpointError: As of `check_finite`.
        ModelError: As of `check_border`, or its owner has exchanged modules or precision since it was compared.
    """
    check_finite(vit.model.state_dict(), vit.spec.name)
    if vit.compared is None:
        check_border(vit)
    is_same = vit.compared == [*vit.model.modules()]
    if not is_same or not computes_in_fp32(vit.model):
        got = "weights that are not in fp32"
        if not is_same:
            got = "an adapter of modules that its model no longer has"
        expected = "load_model(vit.model), an adapter of what it has"
        raise ModelError(vit.spec.name, got, expected)
    return vit


@torch.no_grad()
def with_plain_layers(model: nn.Module, name: str) -> nn.Module:
    """Return a copy whose masked, parametrized and wrapped layers are plain ones; the model itself if all are.

    Raises:
        ModelError: A weight is computed from other tensors in another way.
    """
    with in_one_line(model, name):
        plain = deepcopy(model)
        changes = (_remove_masks(plain), _merge_wrapped(plain))
    for place, module in plain.named_modules():
        if _computes_weight(module):
            got = f"{place}.weight, a tensor that is computed from others"
            hint = "write its value into a parameter of a plain layer"
            raise ModelError(name, got, "parameters in its place", hint)
    return plain if any(changes) else model


def _remove_masks(model: nn.Module) -> bool:
    """Put the values of masked tensors into plain parameters; return whether there are any."""
    masks = [
        (module, hook)
        for module in model.modules()
        for hook in module._forward_pre_hooks.values()
        if isinstance(hook, prune.BasePruningMethod)
    ]
    for module, mask in masks:
        prune.remove(module, mask._tensor_name)
    return bool(masks)


def _merge_wrapped(model: nn.Module) -> bool:
    """Put plain layers in the place of those that wrap or compute others; return whether there are any."""
    merged = list[str]()
    for place, module in [*model.named_modules(remove_duplicate=False)]:
        is_within = place.startswith(tuple(f"{wrapper}." for wrapper in merged))
        # Layers of libraries are what they seem.
        may_be_wrapped = _is_foreign(module) or _computes_weight(module)
        if not place or is_within or not may_be_wrapped:
            continue
        layer = _merged(module)
        if layer is not None:
            model.set_submodule(place, layer)
            merged.append(place)
    return bool(merged)


def _is_foreign(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] not in LIBRARIES


def _computes_weight(module: nn.Module) -> bool:
    return parametrize.is_parametrized(module) or isinstance(
        vars(module).get("weight"), Tensor
    )


def _merged(module: nn.Module) -> nn.Linear | None:
    """Return the linear layer that computes the same; None if there is none."""
    like = next(module.parameters(), None)
    inner = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    channels = getattr(module, "in_features", inner and inner[0].in_features)
    if like is None or not isinstance(channels, int):
        return None
    # The first axis is the batch, the second that of tokens.
    units = torch.eye(channels).unsqueeze(1).to(like)
    largest = min(LARGEST, torch.finfo(like.dtype).max ** 0.4)
    scales = torch.logspace(0, math.log10(largest), SCALES).reshape(SCALES, 1, 1)
    generator = torch.Generator().manual_seed(SEED)
    noise = scales * torch.randn(SCALES, 2, channels, generator=generator)
    noise = noise.to(like)
    try:
        bias = module(torch.zeros_like(units[:1])).flatten()
        weight = module(units).reshape(channels, len(bias)) - bias
        expected = module(noise)
    except Exception:  # of a module that takes something else
        return None
    plain = _plain(module, weight, bias).to(like)
    given = plain(noise)
    if not isinstance(expected, Tensor) or given.shape != expected.shape:
        return None
    difference = (given - expected).abs().flatten(1).amax(dim=1)
    allowed = ROUNDED_WITHIN[like.dtype] * expected.flatten(1).std(dim=1)
    return plain.eval() if (difference <= allowed).all() else None


def _plain(module: nn.Module, weight: Tensor, bias: Tensor) -> nn.Linear:
    """Return the layer of a weight, [inputs, outputs], trained where a part of the module is."""
    names = [place.rpartition(".")[2] for place, _ in module.named_parameters()]
    has_bias = "bias" in names or bool(bias.any())
    inputs, outputs = weight.shape
    plain = nn.Linear(inputs, outputs, bias=has_bias)
    plain.requires_grad_(any(own.requires_grad for own in module.parameters()))
    plain.weight.copy_(weight.T)
    if has_bias:
        plain.bias.copy_(bias)
    return plain


@contextmanager
def in_one_line(model: nn.Module, name: str) -> Iterator[None]:
    """Turn what a module raises that is not as expected into one line: what was asked of which module."""
    try:
        yield
    except CheckpointError as error:
        # of weights that are no parameters of the library's layers
        if error.subject != name:
            raise
        raise ModelError(name, error.got, EXPECTED, MERGE) from None
    except UserError:
        raise
    except Exception as error:  # of whatever the caller's modules are
        place = _culprit(model, error)
        kind = type(model.get_submodule(place)).__name__
        beginning = f"{place}, " if place else ""
        got = f"{beginning}a {kind} of which Python says: {reason_of(error)}"
        raise ModelError(name, got, EXPECTED, MERGE) from error


def _culprit(model: nn.Module, error: Exception) -> str:
    """Return the place of the first part whose class an error names, else of the first that no library made."""
    parts = {place: part for place, part in model.named_modules() if place}
    named = [
        place
        for place, part in parts.items()
        if f"'{type(part).__name__}'" in str(error)
    ]
    foreign = [place for place, part in parts.items() if _is_foreign(part)]
    return next(iter([*named, *foreign]), "")
