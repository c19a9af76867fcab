"""Read the names of a model's classes from what comes with its weights: a config, or entries of a checkpoint."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from exporter.models.identity import CHECKPOINT

logger = logging.getLogger(__name__)

# Under these keys training scripts save the names of classes: in order or by index, and indices by name.
BY_INDEX = (
    "class_names",
    "classes",
    "id2label",
    "idx_to_class",
    "names",
)
BY_NAME = ("class_to_idx", "label2id")
# Names that Hugging Face's library gives to classes without any.
PLACEHOLDER = re.compile(r"LABEL_\d+")


class ClassNames(NamedTuple):
    """The names of classes in the order of the logits, and where they are from; both empty for none."""

    names: tuple[str, ...] = ()
    source: str = ""


NAMELESS = ClassNames()


def config_names(config: object, source: str) -> ClassNames:
    """Return the names in a config of Hugging Face's library: those of `id2label` or `label2id`.

    Placeholders are no names. A warning says so where the indices are not those of classes, or where both fields
    have names, which differ.
    """
    labels = getattr(config, "id2label", None)
    by_index = _by_index(labels)
    by_name = _by_name(getattr(config, "label2id", None))
    if (
        not by_index
        and isinstance(labels, Mapping)
        and not _are_placeholders(labels.values())
    ):
        text = "%s: id2label is not used: it does not give a name to each index from 0 to %d"
        logger.warning(text, source, len(labels) - 1)
    return _agreed({"id2label": by_index, "label2id": by_name}, source, "its config")


def names_in(records: Mapping[str, Mapping[str, Any]], source: str) -> ClassNames:
    """Return the names of classes that a training recorded, none where it has none.

    They are under a key of `BY_INDEX` or `BY_NAME` of any record. If keys contradict each other, a warning says so.
    """
    candidates: dict[str, tuple[str, ...]] = {}
    for place, record in records.items():
        beside = "" if place == "entries" else f" in its {place}"
        for key in BY_INDEX:
            candidates[f"{key}{beside}"] = _by_index(record.get(key))
        for key in BY_NAME:
            candidates[f"{key}{beside}"] = _by_name(record.get(key))
    return _agreed(candidates, source, CHECKPOINT)


def network_names(config: object) -> ClassNames:
    """Return the names of classes in timm's config of a network, with a description first where there is one.

    WordNet's ids and their descriptions become "tench, Tinca tinca, n01440764", in which commas separate synonyms.
    """
    if not isinstance(config, Mapping):
        return NAMELESS
    names = _by_index(config.get("label_names"))
    if _are_placeholders(names):
        return NAMELESS
    described = config.get("label_descriptions")
    described = described if isinstance(described, Mapping) else {}
    synonyms = tuple(
        f"{described[name]}, {name}" if described.get(name, name) != name else name
        for name in names
    )
    return ClassNames(synonyms, "label_names of timm's config")


def _agreed(
    candidates: Mapping[str, tuple[str, ...]], source: str, place: str
) -> ClassNames:
    """Return the names that fields have which are not placeholders; none, and a warning, where fields differ."""
    named = {
        key: names for key, names in candidates.items() if not _are_placeholders(names)
    }
    if len(set(named.values())) > 1:
        text = "%s: class names are not used: %s differ"
        logger.warning(text, source, " and ".join(sorted(named)))
        return NAMELESS
    fields = iter(named.items())
    return next(
        (ClassNames(names, f"{field} of {place}") for field, names in fields), NAMELESS
    )


def _are_placeholders(names: Iterable[object]) -> bool:
    """Whether no name says anything; so it is where there are none."""
    return all(PLACEHOLDER.fullmatch(str(name)) for name in names)


def _by_index(labels: object) -> tuple[str, ...]:
    """Return the names in a list, or in a mapping from each index of as many; nothing for other forms."""
    if isinstance(labels, Mapping):
        by_index = {str(index): name for index, name in labels.items()}
        indices = [str(index) for index in range(len(labels))]
        if set(by_index) != set(indices):
            return ()
        # Digits may be called by numbers.
        names = [by_index[index] for index in indices]
        labels = [str(name) if type(name) is int else name for name in names]
    if not isinstance(labels, Sequence) or isinstance(labels, str | bytes):
        return ()
    return tuple(labels) if all(isinstance(name, str) for name in labels) else ()


def _by_name(indices: object) -> tuple[str, ...]:
    """Return the names that have the indices from 0; nothing for other forms."""
    if not isinstance(indices, Mapping):
        return ()
    by_index = {str(index): name for name, index in indices.items()}
    return _by_index(by_index) if len(by_index) == len(indices) else ()
