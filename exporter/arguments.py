"""Compare the arguments of a function with its annotations, so that a wrong object ends in one line."""

import functools
import inspect
import numbers
import os
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from exporter.core.base.errors import UserError

# NumPy's scalars are numbers too.
NUMBERS: dict[Any, type] = {int: numbers.Integral, float: numbers.Real}
NONE = type(None)
# What is given in place of a model, by its class: how it is called, and what to do.
STAND_INS = {
    "OrderedDict": (
        "a state dict",
        "torch.save it, and give ModelRequest(NAME, checkpoint=FILE)",
    ),
    "ExportedProgram": ("an exported program", "give the module that it was made from"),
    "type": ("a class", "give an instance of it"),
    "NoneType": ("None", ""),
}
# Where one gets what is needed.
MAKERS = {
    "PrunableViT": "load_model returns one",
    "PrunedViT": "prune and dense return one",
}


def with_checked_arguments(
    function: Callable[..., Any], name: str
) -> Callable[..., Any]:
    """Return the function, called `name`, that raises UserError for an argument of no type that it names.

    What is in a list or a mapping is left to the function, as are arguments whose types are named in text.
    """
    signature = inspect.signature(function)
    types_of = {
        parameter.name: _types_of(parameter.annotation)
        for parameter in signature.parameters.values()
    }

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for place, value in signature.bind(*args, **kwargs).arguments.items():
            require(value, types_of[place], f"{name}: {place}")
        return function(*args, **kwargs)

    return checked


def require(value: object, accepted: Sequence[type], subject: str) -> None:
    """Raise UserError for a value of none of the accepted types; text is a sequence only where it is accepted.

    An empty text is no path: it would be the working folder.
    """
    if isinstance(value, str) and not value and os.PathLike in accepted:
        raise UserError(subject, "an empty text", "a path")
    is_text = isinstance(value, str | bytes) and object not in accepted
    if type(value) in accepted or (not is_text and isinstance(value, tuple(accepted))):
        return
    kind = "type" if isinstance(value, type) else type(value).__name__
    got, hint = STAND_INS.get(kind, (f"a {kind}", ""))
    names = [type_.__name__ for type_ in accepted if type_ is not NONE]
    raise UserError(subject, got, " or ".join(names), hint or MAKERS.get(names[0], ""))


def _types_of(annotation: Any) -> tuple[type, ...]:
    """Return the classes that an annotation names; `object` among them where it may be anything."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _types_of(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        parts = [_types_of(part) for part in get_args(annotation)]
        return tuple(type_ for part in parts for type_ in part)
    if origin is Literal:
        return tuple(type(value) for value in get_args(annotation))
    named = NONE if annotation is None else origin or annotation
    if not isinstance(named, type) or getattr(named, "_is_protocol", False):
        return (object,)
    return (NUMBERS.get(named, named),)
