"""A lowered model and what it is of: the one record, and the one reader and writer of a file's metadata.

A file says what it was made from and for. Nothing beside it is asked: which tolerance it is compared with, which
runtime runs it, and how many multiply-adds it takes all follow from here, on machines without onnx and PyTorch.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import exporter
from exporter.errors import ArtefactError, ModelError, RecipeError
from exporter.records import ModelSpec, Output, Pair, Schedule, from_json, to_json
from exporter.targets import Target, target_named
from exporter.tensor_names import token_count_name, token_positions_name
from exporter.vocabulary import InputKind, Layout, OutputKind

__all__ = [
    "Artefact",
    "LoweredFile",
    "from_metadata",
    "output_names",
    "read_lowered",
    "read_pair",
    "tensors_of",
    "to_metadata",
]

KEY_PREFIX = "star_export."
# Without one of these a file is none of ours, or of a version before them.
REQUIRED = ("model", "schedule", "target", "weights_sha256", "input_kind")
EXPECTED = "an ONNX model that star-export made"
# The field of ONNX's ModelProto that holds metadata, those of its entries, and protobuf's kinds of fields.
METADATA, KEY, VALUE = 14, 1, 2
VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True)
class Artefact:
    """What a lowered model is of (`spec`, `weights_sha256`), how it was pruned, and what it was made for.

    `layout` is how a-STAR's tokens lie in a batch; other schedules need none. `weights_sha256` is of the network.
    """

    spec: ModelSpec
    schedule: Schedule
    target: Target
    layout: Layout = Layout.SHRINKING
    input_kind: InputKind = InputKind.FLOAT32
    weights_sha256: str = ""

    @property
    def prunes(self) -> bool:
        """Whether any layer drops a patch, or may."""
        return bool(self.schedule.pruning_layers)

    @property
    def method(self) -> str:
        """The schedule's method, "dense" where it drops nothing."""
        return str(self.schedule.method) if self.prunes else "dense"

    @property
    def follows_image(self) -> bool:
        """Whether token counts are known by the data alone."""
        return self.schedule.adaptive and self.layout != Layout.PADDED


@dataclass(frozen=True)
class LoweredFile:
    """A lowered model on disk."""

    path: Path
    artefact: Artefact


def tensors_of(output: Output, *, counted: bool) -> tuple[str, ...]:
    """The tensors of an output: itself, and of tokens also their positions and, `counted`, their number."""
    if output.kind != OutputKind.TOKENS:
        return (output.name,)
    count = (token_count_name(output.name),) if counted else ()
    return (output.name, token_positions_name(output.name), *count)


def output_names(spec: ModelSpec, schedule: Schedule) -> tuple[str, ...]:
    """The tensors that a pruned model gives, in order; numbers of tokens are given where they follow the image."""
    counted = bool(schedule.masses)
    return tuple(name for output in spec.outputs for name in tensors_of(output, counted=counted))


def to_metadata(artefact: Artefact) -> dict[str, str]:
    """What a model's file says of it; no time, no path."""
    schedule = to_json(artefact.schedule)
    entries = {
        "version": exporter.__version__,
        "model": to_json(artefact.spec),
        "weights_sha256": artefact.weights_sha256,
        "method": artefact.method,
        "schedule": schedule,
        "schedule_sha256": hashlib.sha256(schedule.encode()).hexdigest(),
        "preprocessing": to_json(artefact.spec.preprocessing),
        "target": artefact.target.name,
        "input_kind": str(artefact.input_kind),
        **({"layout": str(artefact.layout)} if artefact.schedule.adaptive else {}),
    }
    return {KEY_PREFIX + key: value for key, value in entries.items()}


def from_metadata(metadata: Mapping[str, str], source: str) -> Artefact:
    """What `to_metadata` wrote; `source` is what errors call the model.

    Raises:
        ArtefactError: It is none of ours, or of a version that said less.
    """
    own = {
        key.removeprefix(KEY_PREFIX): value for key, value in metadata.items() if key.startswith(KEY_PREFIX)
    }
    if not own:
        raise ArtefactError(source, "a model without our metadata", EXPECTED)
    if not own.keys() >= set(REQUIRED):
        version = own.get("version", "unknown")
        hint = "compile it again; --calibration takes the calibration of then"
        raise ArtefactError(
            source, f"a file of star-export {version}", f"one of {exporter.__version__}", hint
        )
    try:
        return Artefact(
            spec=from_json(ModelSpec, own["model"], source=source),
            schedule=from_json(Schedule, own["schedule"], source=source),
            target=target_named(own["target"]),
            layout=Layout.named(own.get("layout", Artefact.layout)),
            input_kind=InputKind.named(own["input_kind"]),
            weights_sha256=own["weights_sha256"],
        )
    except (ModelError, RecipeError) as error:  # a word that this version does not know
        raise ArtefactError(source, f"{error.subject} {error.got}", error.expected) from None


def read_lowered(path: Path) -> LoweredFile:
    """A file and what it says of itself; its graph is not read.

    Raises:
        ArtefactError: It is no ONNX model, or none of ours.
    """
    return LoweredFile(path, from_metadata(read_metadata(path), str(path)))


def read_pair(files: Pair[Path]) -> Pair[LoweredFile]:
    """A dense and a pruned file of the same model.

    Raises:
        ArtefactError: A file is none of ours, is in the other's place, or is of another model.
    """
    pair = Pair(read_lowered(files.dense), read_lowered(files.pruned))
    dense, pruned = pair.dense.artefact, pair.pruned.artefact
    if dense.prunes:
        raise ArtefactError(str(files.dense), "a pruned model", "the dense one")
    if not pruned.prunes:
        raise ArtefactError(str(files.pruned), "a model that drops no patch", "a pruned one")
    if (dense.spec, dense.weights_sha256) != (pruned.spec, pruned.weights_sha256):
        got = f"{dense.spec.name} with other weights or shapes"
        raise ArtefactError(str(files.dense), got, f"the dense model of {files.pruned.name}")
    if (dense.target, dense.input_kind) != (pruned.target, pruned.input_kind):
        got = f"a model for {dense.target.name} that takes {dense.input_kind}"
        expected = f"one for {pruned.target.name} that takes {pruned.input_kind}, as {files.pruned.name}"
        raise ArtefactError(str(files.dense), got, expected)
    return pair


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of an ONNX file, its graph skipped: protobuf's top level alone, which no runtime is needed for.

    Raises:
        ArtefactError: It cannot be read, or is no ONNX model.
    """
    entries: dict[str, str] = {}
    try:
        with path.open("rb") as file:
            while head := file.read(1):
                number, kind = divmod(_varint(file, head), 8)
                if kind == SIZED and number == METADATA:
                    entries.update([_entry(file, _varint(file))])
                else:
                    _skip(file, kind)
    except (OSError, ValueError, OverflowError) as error:
        raise ArtefactError(str(path), str(error), EXPECTED) from None
    return entries


def _entry(file: BinaryIO, size: int) -> tuple[str, str]:
    """One key and its value."""
    parts, end = {KEY: "", VALUE: ""}, file.tell() + size
    while file.tell() < end:
        number, kind = divmod(_varint(file), 8)
        if kind != SIZED or number not in parts:
            raise ValueError("no ONNX metadata")
        parts[number] = _bytes(file, _varint(file)).decode("utf-8")
    if file.tell() != end:
        raise ValueError("no ONNX metadata")
    return parts[KEY], parts[VALUE]


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == VARINT:
        _varint(file)
    elif kind in (EIGHT_BYTES, FOUR_BYTES):
        _bytes(file, 8 if kind == EIGHT_BYTES else 4)
    elif kind == SIZED:
        size = _varint(file)
        if size:
            file.seek(size - 1, 1)
            _bytes(file, 1)  # a file that ends before its graph does is torn
    else:
        raise ValueError("no ONNX model")


def _varint(file: BinaryIO, head: bytes = b"") -> int:
    """Seven bits a byte, the lowest first; at most 64 bits."""
    number = 0
    for shift in range(0, 70, 7):
        byte = (head or _bytes(file, 1))[0]
        head = b""
        number |= (byte & 127) << shift
        if byte < 128:
            return number
    raise ValueError("no ONNX model")


def _bytes(file: BinaryIO, size: int) -> bytes:
    # Room is made before anything is read: a length is held to the file's first.
    if size > 1 and size > os.fstat(file.fileno()).st_size:
        raise ValueError("no ONNX model, or a torn one")
    content = file.read(size)
    if len(content) != size:
        raise ValueError("no ONNX model, or a torn one")
    return content
