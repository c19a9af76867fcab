"""Take a module of the caller's: a copy of it with plain layers, and one line for whatever is wrong with that copy.

A layer is taken for linear if its function is: a wrapper with a branch of low rank, a mask, a parametrization.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from exporter.errors import CheckpointError, ModelError, UserError, reason_of
from exporter.models.border import LIBRARIES, ROUNDED_WITHIN

EXPECTED = "a module of parameters and of layers as their libraries have them"
MERGE = (
    "merge what is added to its layers first, e.g. merge_and_unload() of adapters; or write an "
    "adapter: docs/models.md"
)
# What Python and PyTorch say where an attribute is missing.
LACKS = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
SEED = 0
# Tokens of noise on which a merged layer is compared with what it replaces, the last ones by so much larger, as far
# as fp16 holds them: what bends is not linear there.
TOKENS, LARGEST = 8, 1e4


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


@torch.no_grad()
def with_plain_layers(model: nn.Module, name: str) -> nn.Module:
    """Return a copy whose masked, parametrized and wrapped layers are plain ones; the model itself if all are.

    Raises:
        ModelError: A weight is computed from other tensors in another way.
    """
    with in_one_line(model, name):
        plain = deepcopy(model)
        has_masks = _remove_masks(plain)
        merged: list[str] = []
        for place, module in [*plain.named_modules(remove_duplicate=False)]:
            is_within = place.startswith(tuple(f"{wrapper}." for wrapper in merged))
            if not place or is_within or not _may_be_wrapped(module):
                continue
            linear = _merged(module)
            if linear is not None:
                plain.set_submodule(place, linear)
                merged.append(place)
    for place, module in plain.named_modules():
        if _computes_weight(module):
            got = f"{place}.weight, a tensor that is computed from others"
            hint = "write its value into a parameter of a plain layer"
            raise ModelError(name, got, "parameters in its place", hint)
    return plain if has_masks or merged else model


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


def _may_be_wrapped(module: nn.Module) -> bool:
    """Whether a module is of no library, or computes its weight; libraries' other layers are what they seem."""
    return _is_foreign(module) or _computes_weight(module)


def _is_foreign(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] not in LIBRARIES


def _computes_weight(module: nn.Module) -> bool:
    return parametrize.is_parametrized(module) or isinstance(
        vars(module).get("weight"), Tensor
    )


def _merged(module: nn.Module) -> nn.Linear | None:
    """Return the linear layer that computes the same; None if the module's function is another one."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    channels = getattr(module, "in_features", layers[0].in_features if layers else None)
    like = next(module.parameters(), None)
    if not isinstance(channels, int) or like is None:
        return None
    units = torch.eye(channels).to(like)[None]
    generator = torch.Generator().manual_seed(SEED)
    largest = min(LARGEST, torch.finfo(like.dtype).max ** 0.4)
    scales = torch.logspace(0, math.log10(largest), TOKENS)[:, None]
    noise = (scales * torch.randn(1, TOKENS, channels, generator=generator)).to(like)
    try:
        bias = module(torch.zeros_like(units[:, :1]))
        weight = module(units) - bias
        expected = module(noise)
    except Exception:  # of a module that takes something else than tokens
        return None
    if not isinstance(expected, Tensor) or weight.shape[:-1] != units.shape[:-1]:
        return None
    linear = nn.Linear(channels, weight.shape[-1]).to(like)
    linear.requires_grad_(any(own.requires_grad for own in module.parameters()))
    linear.weight.copy_(weight[0].T)
    assert linear.bias is not None
    linear.bias.copy_(bias[0, 0])
    difference = (linear(noise) - expected).abs().amax(dim=-1)
    if (difference <= ROUNDED_WITHIN[like.dtype] * expected.std(dim=-1)).all():
        return linear.eval()
    return None


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
        match = LACKS.search(str(error))
        kind, attribute = match.groups() if match else ("", "")
        places = [place for place, module in model.named_modules() if place]
        own = [place for place in places if _is_foreign(model.get_submodule(place))]
        lacking = [
            place
            for place in places
            if type(model.get_submodule(place)).__name__ == kind
        ]
        if lacking:
            got = f"{lacking[0]}, a {kind} without {attribute}"
        else:
            culprit = model.get_submodule(own[0] if own else "")
            got = f"{own[0]}, " if own else ""
            got += (
                f"a {type(culprit).__name__} of which Python says: {reason_of(error)}"
            )
        raise ModelError(name, got, EXPECTED, MERGE) from error
