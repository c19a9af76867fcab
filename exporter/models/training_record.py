"""Read what a training recorded of its model beside the weights: its network, how it prepared images, its classes.

One reader for all records: arguments of scripts, hyper-parameters, metadata of safetensors, and timm's config.json.
"""

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torchvision
from torch import Tensor

from exporter.core.base.errors import CheckpointError
from exporter.core.vit.lvvit import LVVITS
from exporter.core.vit.spec import crop_share
from exporter.models.class_names import NAMELESS, ClassNames, names_in, network_names
from exporter.models.identity import CHECKPOINT, read_identity
from exporter.models.listed import CONFIG
from exporter.models.provenance import warn_once
from exporter.models.request import PREPROCESS_KEYS
from exporter.models.timm_arguments import FILES
from exporter.models.weights import read_entries

TORCHVISION = "torchvision/"
# Where scripts keep what they were called with, among the entries of a file.
ENTRIES = (
    "args hyper_parameters datamodule_hyper_parameters hparams config cfg opt meta"
)
# By these, arguments of timm's and torchvision's scripts are told: what they leave open, the config of the network
# decides.
SIGNS = ("crop_pct", "val_resize_size")
# A fact of timm's names → those of the scripts of timm, DeiT, MAE and torchvision, and of Lightning modules.
FACTS = {
    "architecture": "arch backbone model model_name",
    "num_classes": "nb_classes num_labels",
    "class_map": "",
    "input_img_mode": "",
    "img_size": "image_size input_size val_crop_size",
    "global_pool": "gp",
    "crop_pct": "eval_crop_ratio",
    **dict.fromkeys(("patch_size", "num_heads", "act_layer", "in_chans"), ""),
    **dict.fromkeys(("interpolation", "crop_mode"), ""),
    "mean": "image_mean",
    "std": "image_std",
}
NAMES = {name: fact for fact, names in FACTS.items() for name in (fact, *names.split())}
COLOURS = ("mean", "std")
# Where keyword arguments of the network stand below such an entry, and those by which timm loads, or which do not
# matter to a network of one size.
ARGUMENTS = ("model_kwargs", "model_args")
UNREAD = (*FILES, "dynamic_img_size")
# The config of the weights that a training began with, in timm's own.
BEGUN_WITH = "pretrained_cfg"


@dataclass(frozen=True)
class TrainingRecord:
    """What a training recorded, by timm's names; lists are tuples.

    `architecture` has the tag of its weights, if that is known. `place` says where facts are from. `is_whole`: of
    the preprocessing, what is not there is as in the config of the architecture.
    """

    architecture: str = ""
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    class_names: ClassNames = NAMELESS
    class_map: str = ""
    num_classes: int | None = None
    place: str = ""
    is_whole: bool = False


def training_record(
    checkpoint: Path, folder: Path | None = None, settled: frozenset[str] = frozenset()
) -> TrainingRecord:
    """Read the record of a file of weights: its own, and timm's config.json in its folder.

    Args:
        checkpoint: The file.
        folder: That of the config, by default that of the file.
        settled: Facts that the request decides: of these, places may differ.

    Raises:
        CheckpointError: Two places differ, or the images were not in RGB.
    """
    if identity := read_identity(checkpoint):
        names = identity.class_names
        return TrainingRecord(
            class_names=ClassNames(names, CHECKPOINT if names else "")
        )
    records = _records(checkpoint, folder or checkpoint.parent)
    facts, places = _merged(records, checkpoint, settled)
    mode = facts.pop("input_img_mode", "RGB")
    if mode != "RGB":
        raise CheckpointError(checkpoint, f"input_img_mode={mode}", "images in RGB")
    named = names_in(records, str(checkpoint))
    if not named.names:
        config = records[CONFIG]
        before = {"label_names": config.get("labels")}
        named = network_names({**before, **records[BEGUN_WITH], **config})
    used = {place for fact, place in places.items() if fact != "architecture"}
    return TrainingRecord(
        architecture=facts.pop("architecture", ""),
        class_map=str(facts.pop("class_map", "")),
        num_classes=facts.pop("num_classes", None),
        preprocessing={key: facts.pop(key) for key in PREPROCESS_KEYS if key in facts},
        model_kwargs=facts,
        class_names=named,
        place=f"{' and '.join(sorted(used))} of {CHECKPOINT}",
        is_whole="architecture" in places
        and any(sign in records["args"] for sign in SIGNS),
    )


def _records(checkpoint: Path, folder: Path) -> dict[str, Mapping[Any, Any]]:
    """Return all records by their places, those first that are nearest to the weights."""
    entries = {
        key: value
        for key, value in read_entries(checkpoint).items()
        if not isinstance(value, Tensor)
    }
    for key in COLOURS:
        if isinstance(entries.get(key), float):
            del entries[key]  # it was measured
    config = timm_config(folder)
    return {
        "entries": entries,
        **{name: _mapping(entries.get(name)) for name in ENTRIES.split()},
        CONFIG: config,
        BEGUN_WITH: _mapping(config.get(BEGUN_WITH)),
    }


def _merged(
    records: Mapping[str, Mapping[Any, Any]], checkpoint: Path, settled: frozenset[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the facts of all records, and the place of each; a line says which lie too deep to be read."""
    facts: dict[str, Any] = {}
    places: dict[str, str] = {}
    for place, record in records.items():
        for fact, value in _facts(record):
            known = facts.setdefault(fact, value)
            where = places.setdefault(fact, place)
            if known != value and place != BEGUN_WITH and fact not in settled:
                got = f"{fact}={known} in its {where}, {value} in its {place}"
                hint = f"give the {fact} that it was trained with"
                raise CheckpointError(checkpoint, got, "one of them", hint)
    inner = ((place, *entry) for place in records for entry in records[place].items())
    for place, name, entry in inner:
        if name in (*ARGUMENTS, *records):
            continue
        # It may be of another part of the training.
        for fact, value in _facts(_mapping(entry)):
            if fact not in settled and facts.get(fact) != value:
                warn_once(
                    f"{checkpoint}: {fact}={value} of {name} in its {place} is not read; "
                    "give it if it is this model's"
                )
    return facts, places


def timm_config(folder: Path) -> Mapping[str, Any]:
    """Return timm's config in a folder, which transformers' wrapper of timm writes too; {} for none."""
    with suppress(OSError, ValueError, RecursionError):
        config = _mapping(json.loads((folder / CONFIG).read_text("utf-8")))
        if "architecture" in config:
            return config
    return {}


def meant(fact: str, value: Any) -> Any:
    """Return a recorded value as a request has it, None for one that says nothing."""
    if isinstance(value, np.generic | Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        value = tuple(value)
    if fact == "architecture":
        return _known(value) if isinstance(value, str) else None
    if fact == "img_size" and isinstance(value, tuple):
        sides = value[-2:]
        return sides[0] if len({*map(str, sides)}) == 1 else sides
    if fact in COLOURS and value:
        numbers = value if isinstance(value, tuple) else (value,)
        return numbers * 3 if len(numbers) == 1 else numbers
    if fact == "global_pool" and isinstance(value, bool):
        return "avg" if value else "token"  # in MAE's words
    return None if value in ("", ()) else value


def _facts(record: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the facts of a record that say something."""
    pairs = [(NAMES[key], record[key]) for key in record if key in NAMES]
    for place in ARGUMENTS:
        pairs += _mapping(record.get(place)).items()
    cropped, resized = record.get("val_crop_size"), record.get("val_resize_size")
    if isinstance(cropped, int) and isinstance(resized, int):
        with suppress(ArithmeticError, ValueError):
            share = crop_share((cropped, cropped), (resized, resized))
            pairs.append(("crop_pct", share))
    for fact, value in pairs:
        if fact not in UNREAD and not isinstance(value, Mapping):
            value_meant = meant(fact, value)
            if value_meant is not None:
                yield fact, value_meant


def _known(name: str) -> str | None:
    """Return the name of a network that can be built, as a request has it; None for other names."""
    name = name.rpartition("/")[2]
    if name in torchvision.models.list_models(include="vit_*"):
        return f"{TORCHVISION}{name}"
    if name in LVVITS:
        return name
    plain = name.partition(".")[0]
    with suppress(RuntimeError):  # of a tag that this release does not know
        plain = name if timm.get_pretrained_cfg(name) else plain
    return plain if timm.is_model(plain) else None


def _mapping(value: object) -> Mapping[Any, Any]:
    """Return the items of a mapping, or of the arguments of a script."""
    if isinstance(value, Namespace):
        return vars(value)
    return value if isinstance(value, Mapping) else {}
