"""A checkpoint of ours: weights that say what they are, their network and whatever else later stages add.

What they say is the JSON of one key of the metadata: safetensors writes several keys in any order, and the same
weights should give the same bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from exporter.core.base.canonical_json import from_json, to_json
from exporter.core.base.errors import OutputError, as_written
from exporter.core.base.files import regular, writable_file, written_beside
from exporter.core.base.vocabulary import OutputKind

if TYPE_CHECKING:
    from torch import nn

KEY = "star_export"
NETWORK = "network"
# The source of what a checkpoint of ours says.
CHECKPOINT = "the checkpoint"

RecordT = TypeVar("RecordT")


@dataclass(frozen=True)
class Identity:
    """How to build a network: its name in artefacts, its architecture with arguments, and its preprocessing.

    `preprocessing` has overrides of the architecture's own, by timm's keys. `class_names` are in the order of the
    head's numbers, none where they are not known; `head` says what these are.
    """

    name: str
    architecture: str
    model_kwargs: dict[str, Any] = field(default_factory=dict)
    preprocessing: dict[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    head: OutputKind = OutputKind.LOGITS


def save_weights(
    model: "nn.Module", identity: Identity | None, path: Path, **records: object
) -> None:
    """Write weights that need no other file; the same ones give the same bytes.

    Args:
        model: Its tensors are the network's own, so that anything that reads such weights can load them.
        identity: How to build the network; None where that is not known.
        path: Ends in .safetensors.
        records: What later stages say of the weights, by name; None is left out.
    """
    from safetensors.torch import save  # noqa: PLC0415  (as below)

    known = {NETWORK: identity, **records}
    content = {name: record for name, record in known.items() if record is not None}
    # A weight that layers share is written for each of them: the format holds no shared memory.
    state = {
        key: value.detach().cpu().contiguous().clone()
        for key, value in model.state_dict().items()
    }
    with written_beside(path) as partial:
        partial.write_bytes(save(state, {KEY: to_json(content)}))


def weights_file(path: Path) -> Path:
    """Try the place of weights to write, so that a long job does not fail at its end."""
    if path.suffix != ".safetensors":
        raise OutputError("--out", str(path), "a name that ends in .safetensors")
    return writable_file(path)


def read_metadata(path: Path) -> Mapping[str, str]:
    """Return the JSON of each record in a safetensors file; nothing for other files, which their reader refuses."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415  (`--help` reads settings, and no file)

    try:
        with safe_open(regular(path), framework="numpy") as file:
            text = (file.metadata() or {}).get(KEY, "{}")
    except (OSError, SafetensorError, UnicodeDecodeError):
        return {}
    with as_written(path, "a checkpoint"):
        return {name: json.dumps(record) for name, record in json.loads(text).items()}


def read_record(path: Path | None, name: str, kind: type[RecordT]) -> RecordT | None:
    """Read a record of a checkpoint's metadata by name; None where there is no file, or none of that name."""
    text = None if path is None else read_metadata(path).get(name)
    return None if text is None else from_json(kind, text, source=str(path))


def read_identity(path: Path | None) -> Identity | None:
    """Read what a checkpoint says of its network; None where it says nothing, or there is no file."""
    return read_record(path, NETWORK, Identity)
