"""Which classes of two models are the same: by their names, or by the folders of images where one has no names."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.core.base.errors import RecipeError
from exporter.core.base.records import ModelSpec
from exporter.data.class_map import ClassesByName, quoted
from exporter.data.images import ImageFolder

if TYPE_CHECKING:
    from exporter.core.vit.protocol import PrunableViT


def class_order(
    specs: Sequence[ModelSpec],
    names: Sequence[str],
    class_map: Path | None,
    listed: Callable[[ModelSpec], ImageFolder] | None = None,
) -> tuple[int, ...]:
    """Return for each class of a model its index in a second model; () where it is the same for each.

    Args:
        specs: Of both models.
        names: What errors call them.
        class_map: Decides for both, where their names do not.
        listed: Lists labelled images for a model. If one model has no names, those of the images tell its classes.

    Raises:
        RecipeError: Nothing says which classes are the same.
    """
    first, second = (spec.class_names for spec in specs)
    if listed and class_map is None and bool(first) != bool(second):
        first, second = (names_on(listed(spec), spec) for spec in specs)
    try:
        return _aligned(first, second, names)
    except RecipeError:
        if class_map is None:
            raise
        return ()


def names_on(images: ImageFolder, spec: ModelSpec) -> tuple[str, ...]:
    """Return the names of a model's classes; where it knows none, those of the images, if each class has one.

    The images are listed for this model: another one's names decide nothing.
    """
    names, indices = images.class_names, range(spec.num_classes)
    if spec.class_names or set(names) != set(indices):
        return spec.class_names
    return tuple(names[index] for index in indices)


def with_class_names(vit: "PrunableViT", images: ImageFolder | None) -> "PrunableViT":
    """Return the model with the names of the images' classes, if it knows none and each of its classes has one."""
    spec = vit.spec
    names = spec.class_names if images is None else names_on(images, spec)
    if names == spec.class_names:
        return vit
    named = copy(vit)
    sources = replace(spec.sources, class_names="the classes of the images")
    named.spec = replace(spec, class_names=names, sources=sources)
    return named


def _aligned(
    first: Sequence[str], second: Sequence[str], names: Sequence[str]
) -> tuple[int, ...]:
    """Return for each class of a model its index in a second model; nothing where it is the same for each.

    Args:
        first: The names of the model's classes, in the order of its logits; none if it knows none.
        second: Those of the second model.
        names: What errors call both.

    Raises:
        RecipeError: One model alone has names, or the names are not those of the same classes.
    """
    if tuple(first) == tuple(second):
        return ()
    known, order = ClassesByName(second), list[int]()
    for index, name in enumerate(first):
        classes = known.named(name)
        # Some classes of ImageNet have all their names in common.
        if index in classes:
            order.append(index)
        elif len(classes) == 1:
            order += classes
    if sorted(order) == [*range(max(len(first), len(second)))]:
        return tuple(order)
    got, expected = _only(second, first), _only(first, second)
    hint = "save class_names with the weights, or --class-map FILE decides for both"
    raise RecipeError(names[1], got, f"{expected}, as {names[0]} has", hint)


def _only(names: Sequence[str], others: Sequence[str]) -> str:
    rest = quoted([name for name in names if name not in others])
    return f"classes called {rest}" if names else "classes without names"
