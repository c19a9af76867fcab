"""Read the names of a model's classes from what comes with its weights: a config, or entries of a checkpoint."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from exporter.models.identity import read_identity
from exporter.models.weights import read_entries

logger = logging.getLogger(__name__)

# Under these keys training scripts save the names of classes: in order or by index, and indices by name.
BY_INDEX = ("class_names", "classes", "id2label", "idx_to_class", "names")
BY_NAME = ("class_to_idx", "label2id")
# Names that Hugging Face's library gives to classes without any.
PLACEHOLDER = re.compile(r"LABEL_\d+")


def config_names(labels: object, source: str) -> tuple[str, ...]:
    """Return the names of an `id2label`, none for placeholders; warn where its indices are not those of classes."""
    if not isinstance(labels, Mapping) or not labels:
        return ()
    if all(PLACEHOLDER.fullmatch(str(name)) for name in labels.values()):
        return ()
    names = _by_index(labels)
    if not names:
        text = "%s: id2label is not used: it does not give a name to each index from 0 to %d"
        logger.warning(text, source, len(labels) - 1)
    return names


def checkpoint_names(path: Path) -> tuple[str, ...]:
    """Return the names of classes that a file of weights has beside them, none where it has none.

    They are those of star-export's own files, or under a key of `BY_INDEX` or `BY_NAME`: in a torch file's
    outermost mapping, or as JSON in the metadata of safetensors. If keys contradict each other, a warning says so.
    """
    identity = read_identity(path)
    if identity is not None:
        return identity.class_names
    entries = _metadata(path) if path.suffix == ".safetensors" else read_entries(path)
    found = {key: _by_index(entries[key]) for key in BY_INDEX if key in entries}
    found |= {key: _by_name(entries[key]) for key in BY_NAME if key in entries}
    told = {
        key: names
        for key, names in found.items()
        if names and not all(map(PLACEHOLDER.fullmatch, names))
    }
    if len(set(told.values())) > 1:
        logger.warning(
            "%s: class names are not used: %s differ", path, " and ".join(sorted(told))
        )
        return ()
    return next(iter(told.values()), ())


def network_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of classes in timm's config of a network, with a description first where there is one.

    WordNet's ids and their descriptions become "tench, Tinca tinca, n01440764", in which commas separate synonyms.
    """
    config = getattr(model, "pretrained_cfg", None)
    if not isinstance(config, Mapping):
        return ()
    names, described = _by_index(config.get("label_names")), config.get("label_descriptions")
    described = described if isinstance(described, Mapping) else {}
    return tuple(
        f"{described[name]}, {name}" if described.get(name, name) != name else name
        for name in names
    )


def _by_index(told: object) -> tuple[str, ...]:
    """Return the names in a list, or in a mapping from each index of as many; nothing for other forms."""
    if isinstance(told, Mapping):
        keyed = {str(key): name for key, name in told.items()}
        if set(keyed) != set(map(str, range(len(told)))):
            return ()
        names = [keyed[str(index)] for index in range(len(keyed))]
        # Digits may be called by numbers.
        told = [str(name) if type(name) is int else name for name in names]
    if not isinstance(told, Sequence) or isinstance(told, str | bytes):
        return ()
    return tuple(told) if all(isinstance(name, str) for name in told) else ()


def _by_name(told: object) -> tuple[str, ...]:
    """Return the names that have the indices from 0; nothing for other forms."""
    if not isinstance(told, Mapping) or not all(isinstance(name, str) for name in told):
        return ()
    return (
        _by_index({index: name for name, index in told.items()})
        if len(set(map(str, told.values()))) == len(told)
        else ()
    )


def _metadata(path: Path) -> dict[str, Any]:
    """Return those entries of the metadata of a safetensors file that may have names and are JSON."""
    try:
        with safe_open(path, framework="numpy") as file:
            told = file.metadata() or {}
    except (OSError, SafetensorError):
        return {}
    entries = {}
    for key in (*BY_INDEX, *BY_NAME):
        try:
            entries[key] = json.loads(told[key])
        except (KeyError, ValueError, RecursionError):
            continue
    return entries
