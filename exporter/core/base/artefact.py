"""The record of a lowered model, and its form in a file's metadata.

The metadata alone determines the tolerance of comparisons, the runtime, and the MACs of a file. Reading it needs no
PyTorch.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.core.base.canonical_json import from_json, to_json
from exporter.core.base.errors import ArtefactError, as_written
from exporter.core.base.onnx_file import EXPECTED, load_onnx, precision_of
from exporter.core.base.records import ModelSpec, Pair, Schedule
from exporter.core.base.targets import Target, target_named
from exporter.core.base.tensor_names import ALL_INSTRUMENTED
from exporter.core.base.version import VERSION
from exporter.core.base.vocabulary import InputKind, Layout

if TYPE_CHECKING:
    from onnx import ModelProto

KEY_PREFIX = "star_export."


@dataclass(frozen=True)
class Artefact:
    """A lowered model: its source (`spec`, `weights_sha256`), its schedule, its target, and where its file lies.

    `refit_of` is the hash of the weights that were refitted to the schedule, "" where none were. `in_fp32` are the
    nodes that stay fp32 since their values are too large for fp16 (`exporter.core.lower.largest_values`).
    """

    spec: ModelSpec
    schedule: Schedule
    target: Target
    layout: Layout = Layout.SHRINKING
    input_kind: InputKind = InputKind.FLOAT32
    weights_sha256: str = ""
    refit_of: str = ""
    in_fp32: tuple[str, ...] = ()
    path: Path = field(default=Path(), compare=False)

    @property
    def trained_sha256(self) -> str:
        """The hash of the weights as they were trained."""
        return self.refit_of or self.weights_sha256

    @property
    def prunes(self) -> bool:
        """Whether any layer drops patches, or may drop some."""
        return bool(self.schedule.pruning_layers)

    @property
    def method(self) -> str:
        """The schedule's method, or "dense" if it drops nothing."""
        return str(self.schedule.method) if self.prunes else "dense"

    @property
    def follows_image(self) -> bool:
        """Whether tensor shapes depend on the image."""
        return self.schedule.adaptive and self.layout != Layout.PADDED


def to_metadata(artefact: Artefact) -> dict[str, str]:
    """Return the metadata of a model's file; it has no times and no paths."""
    schedule = to_json(artefact.schedule)
    entries = {
        "version": VERSION,
        "model": to_json(artefact.spec),
        "weights_sha256": artefact.weights_sha256,
        "method": artefact.method,
        "schedule": schedule,
        "schedule_sha256": hashlib.sha256(schedule.encode()).hexdigest(),
        "preprocessing": to_json(artefact.spec.preprocessing),
        "target": artefact.target.name,
        "input_kind": str(artefact.input_kind),
        **({"layout": str(artefact.layout)} if artefact.schedule.adaptive else {}),
        **({"refit_of": artefact.refit_of} if artefact.refit_of else {}),
        **({"in_fp32": "\n".join(artefact.in_fp32)} if artefact.in_fp32 else {}),
    }
    return {KEY_PREFIX + key: value for key, value in entries.items()}


def from_metadata(metadata: Mapping[str, str], source: str) -> Artefact:
    """Read the metadata that `to_metadata` wrote; errors name `source`."""
    values = {
        key.removeprefix(KEY_PREFIX): value
        for key, value in metadata.items()
        if key.startswith(KEY_PREFIX)
    }
    if not values:
        raise ArtefactError(source, "a model without star-export's metadata", EXPECTED)
    with as_written(source):
        return Artefact(
            spec=from_json(ModelSpec, values["model"], source=source),
            schedule=from_json(Schedule, values["schedule"], source=source),
            target=target_named(values["target"]),
            layout=Layout.named(values.get("layout", Artefact.layout)),
            input_kind=InputKind.named(values["input_kind"]),
            weights_sha256=values["weights_sha256"],
            refit_of=values.get("refit_of", ""),
            in_fp32=tuple(values.get("in_fp32", "").splitlines()),
        )


def check_precision(artefact: Artefact, model: "ModelProto", source: str) -> None:
    """Raise ArtefactError unless the weights of a model fit the target, which decides the tolerance."""
    precision = precision_of(model)
    if precision != artefact.target.precision:
        expected = f"those of its target {artefact.target.name}, in {artefact.target.precision}"
        raise ArtefactError(
            source, f"weights in {precision}", expected, "compile it again"
        )


def metadata_of(model: "ModelProto") -> dict[str, str]:
    """Return the metadata of a model."""
    return {entry.key: entry.value for entry in model.metadata_props}


def artefact_of(model: "ModelProto", source: str = "") -> Artefact:
    """Return the artefact in a model's metadata; errors name the model `source`.

    Raises:
        ArtefactError: star-export did not make the model, or its weights do not fit its target.
    """
    source = source or model.graph.name
    artefact = from_metadata(metadata_of(model), source)
    check_precision(artefact, model, source)
    return artefact


def read_lowered(path: Path) -> Artefact:
    """Read the artefact of a file."""
    return replace(artefact_of(load_onnx(path), str(path)), path=path)


def read_pair(files: Pair[Path]) -> Pair[Artefact]:
    """Read the metadata of a dense and a pruned file of the same model."""
    for path in (files.dense, files.pruned):
        if path.stem.rpartition(".")[2] in ALL_INSTRUMENTED:
            raise ArtefactError(
                path, "a variant", "a model: variants are for check and bench alone"
            )
    pair = Pair(read_lowered(files.dense), read_lowered(files.pruned))
    check_pair(pair)
    return pair


def check_pair(pair: Pair[Artefact]) -> None:
    """Raise ArtefactError unless two files are the dense and the pruned form of the same model."""
    files = Pair(pair.dense.path, pair.pruned.path)
    dense, pruned = pair.dense, pair.pruned
    if dense.prunes or not pruned.prunes:
        got = f"{dense.method} before {pruned.method}"
        raise ArtefactError(files.dense, got, "the dense model, then a pruned one")
    if (dense.spec, dense.trained_sha256) != (pruned.spec, pruned.trained_sha256):
        got = f"{dense.spec.name} with other weights or shapes"
        raise ArtefactError(files.dense, got, f"the dense model of {files.pruned.name}")
    if (dense.target, dense.input_kind) != (pruned.target, pruned.input_kind):
        got = f"a model for {dense.target.name} that takes {dense.input_kind}"
        expected = f"one for {pruned.target.name} that takes {pruned.input_kind}, as {files.pruned.name}"
        raise ArtefactError(files.dense, got, expected)
