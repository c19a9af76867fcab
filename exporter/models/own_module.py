"""Take a module of the caller's: a copy of it, and one line for whatever goes wrong with that copy."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

from torch import Tensor, nn

from exporter.errors import ModelError, UserError, reason_of

EXPECTED = "a module of parameters and of layers as their libraries have them"
MERGE = (
    "merge what is added to its layers first, e.g. merge_and_unload() of adapters; or write an "
    "adapter: docs/models.md"
)
# What Python and PyTorch say where an attribute is missing.
LACKS = re.compile(r"'(\w+)' object has no attribute '(\w+)'")


def copy_of(model: nn.Module, name: str) -> nn.Module:
    """Return a copy in eval mode; ModelError where a tensor of it is computed from others, as masks are."""
    for place, module in model.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                got = f"{f'{place}.{attribute}'.lstrip('.')}, a tensor that is computed from others"
                hint = f"of a pruning mask: torch.nn.utils.prune.remove(module, {attribute!r})"
                raise ModelError(name, got, "parameters in its place", hint)
    with in_one_line(model, name):
        return deepcopy(model).eval()


@contextmanager
def in_one_line(model: nn.Module, name: str) -> Iterator[None]:
    """Turn what a module raises that is not as expected into one line: what was asked of which module."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of whatever the caller's modules are
        got = f"a {type(model).__name__} of which Python says: {reason_of(error)}"
        if match := LACKS.search(str(error)):
            kind, attribute = match.groups()
            got = f"{_place_of(model, kind)}a {kind} without {attribute}"
        raise ModelError(name, got, EXPECTED, MERGE) from error


def _place_of(model: nn.Module, kind: str) -> str:
    """Return the place of the first module of a class, to go before its name."""
    for place, module in model.named_modules():
        if place and type(module).__name__ == kind:
            return f"{place}, "
    return ""
