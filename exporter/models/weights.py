"""Read weights from files.

No code in a pickle is run: only tensors are read, and the plain values that training scripts save with them.
"""

import argparse
import logging
import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from exporter.errors import CheckpointError, reason_of
from exporter.files import regular
from exporter.models.conversion import check_size, own_part, to_own_keys, without_shared_prefix

logger = logging.getLogger(__name__)

EXPECTED = "a .safetensors file or a checkpoint of tensors"
SAVE = "save its weights alone: torch.save(model.state_dict(), FILE)"

# What readers raise on bytes that others wrote, and conversions on tensors of shapes that nobody expects.
UNREADABLE = (
    *(
        ArithmeticError,
        AssertionError,
        AttributeError,
        EOFError,
        LookupError,
        MemoryError,
        OSError,
    ),
    *(
        RuntimeError,
        SafetensorError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
        struct.error,
    ),
)

# Keys of the weights in checkpoints: DeiT and STAR "model", TokenLabeling "state_dict_ema", timm "state_dict".
WRAPPERS = ("model_ema", "state_dict_ema", "model", "state_dict", "module")

# The key of a classifier's weights: timm's, that of its larger heads, and torchvision's.
HEAD = re.compile(r"(?:^|\.)head\.weight$")

# Keys that tell of weights which are not whole: what they belong to, and what to do.
JOIN = "join the shards first: zero_to_fp32.py of DeepSpeed, FULL_STATE_DICT of FSDP"
PARTS = (
    (
        re.compile(r"(?:^|\.)(?:lora_\w+|base_layer|modules_to_save)\."),
        "an adapter of PEFT that is not merged",
        "merge first: model.merge_and_unload(), then save its state_dict()",
    ),
    (
        re.compile(r"(?:^|\.)_?flat_param"),
        "a shard of FSDP",
        JOIN,
    ),
    (
        re.compile(r"(?:^|\.)(?:optimizer_state_dict|fp32_flat_groups)(?:\.|$)"),
        "a shard of DeepSpeed's ZeRO",
        JOIN,
    ),
)
# Keys of scales, by which weights of 8 bits are to be multiplied.
SCALE = re.compile(r"(?:weight|input|output)_scale(?:_inv)?$|scale_(?:weight|input)$")

# What a file is, by its first bytes, or by the end of its name; or of that of a member, if it is a zip archive.
STARTS = {
    b"GGUF": "a GGUF file",
    b"\x89HDF": "an HDF5 file, as Keras writes",
    b"\x93NUMPY": "an array of NumPy",
    b"\x1f\x8b": "a gzip archive",
    b"version https://git-lfs": "a pointer of Git LFS, without the file that git lfs pull gets",
    b"\x80": "a pickle that is broken, or that torch.save did not write",
}
ENDS = {
    "/constants.pkl": "a TorchScript archive",
    ".npy": "arrays of NumPy, as JAX's models are saved",
    ".weights.h5": "a model of Keras",
    ".msgpack": "a MessagePack file, as Flax writes",
    ".onnx": "an ONNX file",
    ".pb": "a graph of TensorFlow",
    ".tflite": "a model of LiteRT",
    ".index": "an index of TensorFlow's weights",
}

# Values that scripts save with the weights: arguments, with paths, and NumPy numbers. None of them is kept.
_NUMBER: Any = np.float64(0).__reduce__()[0]
_HARMLESS: list[Any] = [
    argparse.Namespace,
    *((PurePosixPath, f"{module}.PosixPath") for module in ("pathlib", "pathlib._local")),
    *((PureWindowsPath, f"{module}.WindowsPath") for module in ("pathlib", "pathlib._local")),
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
        content = load_file(path) if _is_safetensors(regular(path)) else _torch_load(path)
    except UNREADABLE as error:
        got, hint = _described(path, error)
        raise CheckpointError(str(path), got, EXPECTED, hint) from None
    whole, taken = content, ""
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content, taken = content[wrapper], taken or wrapper
    found = _tensors(content)
    _check_whole(whole, found, path)
    if not found:
        raise CheckpointError(
            str(path), f"a {type(content).__name__} without weights", EXPECTED, SAVE
        )
    if taken and isinstance(whole, Mapping):
        _say_which(whole, taken, found, path)
    return {name: _plain(name, value, path) for name, value in found.items()}


def class_count(state: Mapping[str, Tensor]) -> int | None:
    """Return the number of classes of the checkpoint's head, below any prefix; None where that is not clear."""
    heads = [
        (key, value) for key, value in state.items() if HEAD.search(key) and value.ndim == 2
    ]
    least = min((key.count(".") for key, _ in heads), default=0)
    counts = {value.shape[0] for key, value in heads if key.count(".") == least}
    return counts.pop() if len(counts) == 1 else None


def load_into(
    model: nn.Module, state: Mapping[str, Tensor], source: str, asked: Collection[str] = ()
) -> None:
    """Load strictly, in the model's own dtype; prefixes, keys and grids of files are converted first.

    `asked` has the names of the keyword arguments that were given for the network, which allow to resample
    its weights.
    """
    own = model.state_dict()
    try:
        state = own_part(state, own.keys(), source)
        empty = next(
            (
                key
                for key, value in own.items()
                if value.numel() > state.get(key, value).numel() == 0
            ),
            "",
        )
        if empty:  # the parameters in a shard of ZeRO's third stage
            raise CheckpointError(
                source, f"{empty} without values", "the weights of a whole model", JOIN
            )
        check_size(state, model, asked, source)
        state = to_own_keys(state, model)
    except UNREADABLE as error:
        raise CheckpointError(
            source, reason_of(error), f"the {len(own)} keys of this model"
        ) from None
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    if missing or unexpected:
        got = "; ".join(
            f"{len(keys)} keys {what} ({', '.join(keys[:3])}{', …' if len(keys) > 3 else ''})"
            for what, keys in (("missing", missing), ("unexpected", unexpected))
            if keys
        )
        raise CheckpointError(source, got, f"the {len(own)} keys of this model")
    for key, value in own.items():
        if state[key].shape != value.shape:
            raise CheckpointError(
                source,
                f"{key} of shape {list(state[key].shape)}",
                f"{list(value.shape)}",
                "check --model and --model-kwargs, and num_classes in a recipe",
            )
        if value.is_floating_point() and not state[key].is_floating_point():
            kind = str(state[key].dtype).removeprefix("torch.")
            raise CheckpointError(source, f"{key} of type {kind}", "floating-point weights")
    check_finite(state, source)
    model.load_state_dict({key: value.to(own[key].dtype) for key, value in state.items()})


def check_finite(state: Mapping[str, Tensor], source: str) -> None:
    """Raise CheckpointError for the first tensor with a value that is not finite."""
    for key, value in state.items():
        if not bool(value.isfinite().all()):
            raise CheckpointError(
                source, f"{key} with NaN or infinity", "finite weights", "train it again"
            )


def read_entries(path: Path) -> Mapping[str, Any]:
    """Return the outermost entries of a torch file, whose weights stay on the disk; none if it cannot be read."""
    try:
        content = _torch_load(regular(path), mmap=zipfile.is_zipfile(path))
    except UNREADABLE:
        return {}
    return content if isinstance(content, Mapping) else {}


def _is_safetensors(path: Path) -> bool:
    """Whether a file begins with the length of a JSON object and the object, or its name says so."""
    with path.open("rb") as file:
        return path.suffix == ".safetensors" or file.read(9)[8:] == b"{"


def _described(path: Path, error: Exception) -> tuple[str, str]:
    """Return what a file is that cannot be read, and what to do."""
    if isinstance(error, OSError):
        return reason_of(error), ""
    if named := re.search(r"GLOBAL ([\w.]{1,100})", str(error)):
        shard = named[1].startswith(("deepspeed.", "torch.distributed."))
        return (
            f"a pickled {named[1]}, which only its own code can read",
            JOIN if shard else SAVE,
        )
    if kind := _kind(path):
        return kind, SAVE
    # PyTorch's advice on pickles is long, with codes for a terminal; of others the first sentence says what it is.
    told = (
        ""
        if isinstance(error, pickle.UnpicklingError)
        else f": {reason_of(error).partition('. ')[0]}"
    )
    return f"a file that is broken, or no checkpoint{told}", "copy it again"


def _kind(path: Path) -> str:
    """Return what a file is that is no checkpoint, "" where nothing tells."""
    with path.open("rb") as file:
        start = file.read(512)
    names = [path.name]
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    kind = next((kind for sign, kind in STARTS.items() if start.startswith(sign)), "")
    kind = kind or next(
        (kind for end, kind in ENDS.items() if any(name.endswith(end) for name in names)), ""
    )
    if kind or any(name.endswith("data.pkl") for name in names):
        return kind
    if len(names) > 1 or names[0] != path.name:
        return "a zip archive that torch.save did not write"
    is_text = not any(byte < 32 and chr(byte) not in "\t\n\r\f" for byte in start)
    return "a text file" if start and is_text else "" if start else "an empty file"


def _tensors(content: object, deepest: int = 4) -> dict[str, Tensor]:
    """Return tensors by key; those of dictionaries in a dictionary without weights of its own by joined keys."""
    if not isinstance(content, Mapping):
        return {}
    found = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if deepest and not any(value.ndim for value in found.values()):
        for name, inner in content.items():
            found |= {
                f"{name}.{key}": value for key, value in _tensors(inner, deepest - 1).items()
            }
    return found


def _check_whole(content: object, found: Mapping[str, Tensor], path: Path) -> None:
    """Refuse what holds a part of a network's weights, and weights that are only right with others beside them."""
    keys = [*found, *(map(str, content) if isinstance(content, Mapping) else ())]
    for sign, kind, hint in PARTS:
        if named := next(filter(sign.search, keys), None):
            raise CheckpointError(
                str(path), f"{named}, of {kind}", "the weights of a whole model", hint
            )
    scale = next(filter(SCALE.search, found), None)
    if scale and any(map(_is_eight_bits, found.values())):
        got = f"{scale}, a scale of weights of 8 bits"
        raise CheckpointError(
            str(path), got, "weights that need no scales", "multiply by them, then save again"
        )


def _say_which(
    content: Mapping[Any, Any], taken: str, found: Mapping[str, Tensor], path: Path
) -> None:
    longest = max(without_shared_prefix(found), key=len)
    others = [
        str(key)
        for key, inner in content.items()
        if key != taken and any(name.endswith(longest) for name in _tensors(inner))
    ]
    if others:
        logger.warning(
            "%s: the weights of %s are taken, not those of %s", path, taken, " or ".join(others)
        )


def _is_eight_bits(value: Tensor) -> bool:
    return value.is_floating_point() and value.element_size() == 1


def _plain(name: str, value: Tensor, path: Path) -> Tensor:
    """Return a tensor that anything can be computed with."""
    if value.is_meta or value.is_nested or value.layout != torch.strided:
        got = f"{name}, a tensor that is sparse, nested or without values"
        raise CheckpointError(str(path), got, EXPECTED)
    if not _is_eight_bits(value):
        return value
    try:
        return value.float()  # exact: each number of 8 bits is one of 32
    except RuntimeError:
        got = f"{name} of type {str(value.dtype).removeprefix('torch.')}"
        raise CheckpointError(
            str(path), got, "floating-point weights of 8 bits or more"
        ) from None


def _torch_load(path: Path, *, mmap: bool = False) -> object:
    # torch warns of pickles that it did not write before it rejects them: the error is enough.
    with torch.serialization.safe_globals(_HARMLESS), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
