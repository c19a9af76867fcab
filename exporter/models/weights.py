"""Read weights from files, and compute the hash that identifies them.

No code in a pickle is run: only tensors are read, and the plain values that training scripts save with them.
"""

import argparse
import hashlib
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from exporter.errors import CheckpointError, reason_of
from exporter.files import regular
from exporter.models.conversion import to_own_keys

__all__ = ["check_finite", "class_count", "load_into", "read_entries", "read_state_dict", "weights_sha256"]

# Keys of the weights in checkpoints: DeiT and STAR "model", TokenLabeling "state_dict_ema", timm "state_dict".
WRAPPERS = ("model_ema", "state_dict_ema", "model", "state_dict", "module")

# Keys of a classifier's weights: timm's, those of its larger heads, and torchvision's.
HEADS = ("head.weight", "head.head.weight", "heads.head.weight")

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

    The weights may be under the keys that training scripts use; a `module.` prefix is removed.

    Raises:
        CheckpointError: No such file, or a file that is not weights.
    """
    expected = "a .safetensors file or a checkpoint of tensors"
    try:
        regular(path)
        content = load_file(path) if path.suffix == ".safetensors" else _torch_load(path)
    except (
        OSError,
        SafetensorError,
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
    ) as error:
        raise CheckpointError(str(path), reason_of(error), expected) from None
    for wrapper in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not any(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(str(path), f"a {type(content).__name__} without weights", expected)
    found = {str(key).removeprefix("module."): v for key, v in content.items() if isinstance(v, Tensor)}
    for name, value in found.items():
        if value.layout != torch.strided or value.is_meta or value.is_quantized:
            kind = "without values" if value.is_meta else "sparse or quantized"
            raise CheckpointError(str(path), f"{name}, a tensor that is {kind}", expected)
    return found


def class_count(state: Mapping[str, Tensor]) -> int | None:
    """Return the number of classes of the checkpoint's head, None where it has none."""
    return next((state[name].shape[0] for name in HEADS if name in state and state[name].ndim), None)


def load_into(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load strictly, in the model's own dtype; keys and grids of official files are converted first.

    Raises:
        CheckpointError: Keys, shapes or types are not this model's, or a value is not finite; the message names the
            first of them.
    """
    own = model.state_dict()
    try:
        state = to_own_keys(state, model)
    except (RuntimeError, ValueError, AssertionError, IndexError) as error:
        raise CheckpointError(source, reason_of(error), f"the {len(own)} keys of this model") from None
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
            raise CheckpointError(source, f"{key} with NaN or infinity", "finite weights", "train it again")


def weights_sha256(model: nn.Module) -> str:
    """Hash names, dtypes, shapes and bytes of all parameters and buffers to a hex digest; "" on the meta device."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if value.is_meta:
            return ""
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_entries(path: Path) -> Mapping[str, Any]:
    """Return the outermost entries of a torch file, whose weights stay on the disk; none if it cannot be read."""
    try:
        content = _torch_load(regular(path), mmap=zipfile.is_zipfile(path))
    except (OSError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError):
        return {}
    return content if isinstance(content, Mapping) else {}


def _torch_load(path: Path, *, mmap: bool = False) -> object:
    # torch warns of pickles that it did not write before it rejects them: the error is enough.
    with torch.serialization.safe_globals(_HARMLESS), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
