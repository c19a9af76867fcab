"""Read weights from files.

No code in a pickle is run: only tensors are read, and the plain values that training scripts save with them.
"""

import argparse
import json
import logging
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from exporter.core.base.errors import CheckpointError, reason_of
from exporter.core.base.files import regular
from exporter.models.conversion import (
    HEAD,
    check_size,
    own_part,
    to_own_keys,
    with_own_head,
)
from exporter.models.forms import A_CHECKPOINT, evidence_of, refusal

logger = logging.getLogger(__name__)

WHOLE = "the weights of a whole model"
SAVE = "save its weights alone: torch.save(model.state_dict(), FILE)"
JOIN = "join the shards first: zero_to_fp32.py of DeepSpeed, FULL_STATE_DICT of FSDP"

# What readers raise on bytes that others wrote, and conversions on tensors of shapes that nobody expects.
UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    struct.error,
)

# Keys of the weights in checkpoints: DeiT and STAR "model", TokenLabeling "state_dict_ema", timm "state_dict".
WRAPPERS = ("model_ema", "state_dict_ema", "model", "state_dict", "module")

# What to do with a network whose head is beside it.
HEAD_BESIDE = "put them into the network, e.g. model.backbone.head = model.head, and save model.backbone alone"
# The key of a classifier's weights, wherever a network is.
HEAD_WEIGHT = re.compile(rf"(?:^|\.){HEAD.pattern}$")
# Averages, which may be a list without keys.
EMA = re.compile(r"(?:^|_)ema(?:_|$)")
# A class in a pickle, as PyTorch's refusal of it has it.
GLOBAL = re.compile(r"GLOBAL ([\w.]{1,100})")

# Values that scripts save with the weights: arguments, with paths, and NumPy numbers. None of them is kept.
_NUMBER: Any = np.float64(0).__reduce__()[0]
_PATHS = {"PosixPath": PurePosixPath, "WindowsPath": PureWindowsPath}
_HARMLESS: list[Any] = [
    argparse.Namespace,
    *(
        (kind, f"{module}.{name}")
        for name, kind in _PATHS.items()
        for module in ("pathlib", "pathlib._local")
    ),
    *((_NUMBER, f"numpy.{module}.multiarray.scalar") for module in ("core", "_core")),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "int64")),
]


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read a checkpoint: safetensors, or torch's format with only tensors, script arguments and numbers.

    The weights may be under the keys that training scripts use; those in dictionaries of other names have these as
    prefixes, which `load_into` removes. Where a file has several sets of weights, one line is logged.
    """
    try:
        content = (
            load_file(path) if _is_safetensors(regular(path)) else _torch_load(path)
        )
    except UNREADABLE as error:
        raise _unreadable(path, error) from None
    inner, outer_name = content, ""
    for wrapper in WRAPPERS:
        if isinstance(inner, Mapping) and isinstance(inner.get(wrapper), Mapping):
            inner, outer_name = inner[wrapper], outer_name or wrapper
    weights = _tensors(inner)
    _check_complete(content, weights, path)
    if not weights:
        got = f"a {type(inner).__name__} without weights"
        raise CheckpointError(path, got, A_CHECKPOINT, SAVE)
    if outer_name and isinstance(content, Mapping):
        _log_other_sets(content, outer_name, path)
    dense = {name: value.to_dense() for name, value in weights.items()}
    # Exact: each number of 8 bits is one of 32.
    return {
        name: value.float() if _is_eight_bits(value) else value
        for name, value in dense.items()
    }


def class_count(state: Mapping[str, Tensor]) -> int | None:
    """Return the number of classes of the checkpoint's head, below any prefix; None where that is not clear."""
    heads = {
        key: len(value)
        for key, value in state.items()
        if HEAD_WEIGHT.search(key) and value.ndim == 2
    }
    depth = min((key.count(".") for key in heads), default=0)
    counts = {count for key, count in heads.items() if key.count(".") == depth}
    return counts.pop() if len(counts) == 1 else None


def load_into(
    model: nn.Module,
    state: Mapping[str, Tensor],
    source: str,
    arguments: Collection[str] = (),
) -> None:
    """Load strictly, in the model's own dtype; prefixes, keys and grids of files are converted first.

    `arguments` has the names of the keyword arguments that were given for the network, which allow to resample
    its weights.
    """
    targets = model.state_dict()
    expected = f"the {len(targets)} keys of this model"
    try:
        weights = own_part(state, targets.keys(), source)
        for key, target in targets.items():
            if target.numel() > weights.get(key, target).numel() == 0:
                # The parameters in a shard of ZeRO's third stage.
                got = f"{key} without values"
                raise CheckpointError(source, got, WHOLE, JOIN)
        check_size(weights, model, arguments, source)
        weights = to_own_keys(with_own_head(weights, model, source), model)
    except UNREADABLE as error:
        raise CheckpointError(source, reason_of(error), expected) from None
    differences = []
    missing = targets.keys() - weights.keys()
    unexpected = weights.keys() - targets.keys()
    for keys, difference in ((missing, "missing"), (unexpected, "unexpected")):
        if keys:
            names = f"{', '.join(sorted(keys)[:3])}{', …' if len(keys) > 3 else ''}"
            differences.append(f"{len(keys)} keys {difference} ({names})")
    if differences:
        places = [f".{key}" for key in state]
        is_beside = missing and all(
            any(place.endswith(f".{key}") for place in places) for key in missing
        )
        got, hint = "; ".join(differences), HEAD_BESIDE if is_beside else ""
        evidence = [f"unfit {source}", *(f"unexpected {key}" for key in unexpected)]
        raise refusal(source, evidence, got, expected) or CheckpointError(
            source, got, expected, hint
        )
    for key, target in targets.items():
        _check_fits(key, weights[key], target, source)
    check_finite(weights, source)
    model.load_state_dict(
        {key: weights[key].to(target.dtype) for key, target in targets.items()}
    )


def _check_fits(key: str, value: Tensor, target: Tensor, source: str) -> None:
    if value.shape != target.shape:
        got = f"{key} of shape {list(value.shape)}"
        hint = "check --model and --model-kwargs"
        expected = f"{list(target.shape)}"
        raise CheckpointError(
            source, got, expected, f"{hint}, and num_classes in a recipe"
        )
    if target.is_floating_point() and not value.is_floating_point():
        dtype = str(value.dtype).removeprefix("torch.")
        raise CheckpointError(
            source, f"{key} of type {dtype}", "floating-point weights"
        )


def check_finite(state: Mapping[str, Any], source: str) -> None:
    """Raise CheckpointError for the first that is no tensor, or without values, or with one that is not finite."""
    for key, value in state.items():
        if not isinstance(value, Tensor):
            got = f"{key}, a {type(value).__name__}"
            raise CheckpointError(source, got, "tensors alone, as before quantization")
        if is_lazy(value) or value.is_meta:
            got = f"{key} without values"
            raise CheckpointError(source, got, "trained weights", "load them first")
        if not bool(value.isfinite().all()):
            raise CheckpointError(
                source,
                f"{key} with NaN or infinity",
                "finite weights",
                "train it again",
            )


def read_entries(path: Path) -> Mapping[Any, Any]:
    """Return the outermost entries of a file, whose weights stay on the disk; none if it cannot be read.

    Those of safetensors are its metadata, whose texts are JSON or plain.
    """
    try:
        if _is_safetensors(regular(path)):
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
            return {key: _decoded(text) for key, text in metadata.items()}
        content = _torch_load(path, mmap=zipfile.is_zipfile(path))
    except UNREADABLE:
        return {}
    return content if isinstance(content, Mapping) else {}


def _decoded(text: str) -> object:
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return text


def _is_safetensors(path: Path) -> bool:
    """Whether a file begins with the length of a JSON object and the object, or its name says so."""
    with path.open("rb") as file:
        return path.suffix == ".safetensors" or file.read(9)[8:] == b"{"


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    """Return the error of what cannot be read, by its form; what no file system gives has none."""
    if isinstance(error, OSError) and not path.is_dir():
        return CheckpointError(path, reason_of(error), A_CHECKPOINT)
    match = GLOBAL.search(str(error))
    evidence = [f"pickles {match[1]}"] if match else evidence_of(path)
    return refusal(path, evidence) or CheckpointError(
        path, reason_of(error), A_CHECKPOINT
    )


def _tensors(content: object, depth: int = 4) -> dict[str, Tensor]:
    """Return tensors by key; those of dictionaries in a dictionary without weights of its own by joined keys."""
    if not isinstance(content, Mapping):
        return {}
    tensors = {
        str(key): value for key, value in content.items() if isinstance(value, Tensor)
    }
    if depth and not any(value.ndim for value in tensors.values()):
        for name, inner in content.items():
            for key, value in _tensors(inner, depth - 1).items():
                tensors[f"{name}.{key}"] = value
    return tensors


def _check_complete(content: object, weights: Mapping[str, Tensor], path: Path) -> None:
    """Refuse what holds a part of a network's weights."""
    outer = content if isinstance(content, Mapping) else {}
    inner = (
        f"{name}.{key}"
        for name, entry in outer.items()
        if isinstance(entry, Mapping)
        for key in entry
    )
    keys = [*weights, *outer, *inner]
    part = refusal(path, [f"key {key}" for key in keys], expected=WHOLE)
    if part is not None:
        raise part


def _log_other_sets(content: Mapping[Any, Any], name: str, path: Path) -> None:
    names = [
        str(key)
        for key, weights in content.items()
        if key != name and weights and (key in WRAPPERS or EMA.search(str(key)))
    ]
    if names:
        text = "%s: the weights of %s are taken, not those of %s"
        logger.warning(text, path, name, " or ".join(names))


def _is_eight_bits(value: Tensor) -> bool:
    return value.is_floating_point() and value.element_size() == 1


def _torch_load(path: Path, *, mmap: bool = False) -> object:
    # torch warns of pickles that it did not write before it rejects them: the error is enough.
    with torch.serialization.safe_globals(_HARMLESS), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
