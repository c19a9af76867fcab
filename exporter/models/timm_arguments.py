"""Keyword arguments of timm's models: plain values, which the record of a checkpoint can hold, and their limits."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from timm.layers import SwiGLUPacked
from torch import nn

from exporter.core.base.errors import ModelError, reason_of
from exporter.core.base.settings import MOST

# Stands for timm's class as `mlp_layer`; `norm_eps` stands for a LayerNorm of this epsilon as `norm_layer`.
SWIGLU = "swiglu_packed"
# What timm's constructors raise for values that they do not check.
WRONG_ARGUMENTS = (
    TypeError,
    ValueError,
    AssertionError,
    ArithmeticError,
    LookupError,
    AttributeError,
)
# Arguments that name files: weights are given as --checkpoint.
FILES = ("checkpoint_path", "pretrained", "cache_dir")
# Whole numbers by name: the least and the most.
LIMITS = {"depth": (1, 1000), "num_heads": (1, 1000), "num_classes": (0, MOST)}


def arguments(plain: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the keyword arguments for timm; ModelError for values that it would take and fail on later."""
    for file in FILES:
        if file in plain:
            expected = "keyword arguments that timm's model takes"
            raise ModelError(name, file, expected, "or --checkpoint FILE")
    for argument, (least, most) in LIMITS.items():
        value = plain.get(argument, least)
        if isinstance(value, int) and not least <= value <= most:
            raise ModelError(
                name, f"{argument}={value}", f"a number from {least} to {most}"
            )
    if plain.get("in_chans", 3) != 3:
        raise ModelError(name, f"in_chans={plain['in_chans']}", "3: images are RGB")
    kwargs = dict(plain)
    if "norm_eps" in kwargs:
        eps = kwargs.pop("norm_eps")
        if type(eps) not in (int, float) or not 0 < eps < 1:
            raise ModelError(
                name, "norm_eps of another kind", "a number above 0 and below 1"
            )
        kwargs["norm_layer"] = partial(nn.LayerNorm, eps=eps)
    if kwargs.get("mlp_layer") == SWIGLU:
        kwargs["mlp_layer"] = SwiGLUPacked
    if kwargs.get("pos_embed", "") is None:
        kwargs["pos_embed"] = "none"  # timm's own word for it
    return kwargs


def check_texts(network: type, plain: Mapping[str, Any], name: str) -> None:
    """Refuse text where a network's class has a number or a switch: Python takes any text for true."""
    defaults: dict[str, Any] = {}
    for base in reversed(network.__mro__):
        if "__init__" in vars(base):
            for parameter in inspect.signature(base).parameters.values():
                defaults[parameter.name] = parameter.default
    for argument, value in plain.items():
        default = defaults.get(argument)
        if isinstance(value, str) and isinstance(default, bool | int | float | tuple):
            expected = f"a value such as {default}"
            if isinstance(default, bool):
                expected = "true or false"
            raise ModelError(name, f"{argument}={value!r}, a text", expected)


@contextmanager
def running_with(kwargs: Mapping[str, Any], name: str) -> Iterator[None]:
    """Within the `with`, what a network raises that was built with such arguments is an error of theirs."""
    try:
        yield
    except (*WRONG_ARGUMENTS, RuntimeError) as error:
        if not kwargs:
            raise
        got = f"{', '.join(kwargs)}: {reason_of(error)}"
        raise ModelError(name, got, "keyword arguments that its model takes") from None
