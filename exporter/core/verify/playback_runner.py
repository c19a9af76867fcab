"""`Runner` for PyTorch's recorded answers (`reference.npz`), for machines without PyTorch."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from exporter.core.base.errors import ParityError
from exporter.core.base.outputs import output_shapes, tensors_of
from exporter.core.base.records import ModelSpec, Output, Schedule
from exporter.core.base.tensor_names import (
    IMAGES,
    LOGITS,
    Array,
    count_name,
    gap_name,
    into_name,
    keep_layers,
    keep_name,
    score_name,
    token_count_name,
)
from exporter.core.base.vocabulary import OutputKind
from exporter.core.schedule.methods import reduction_named
from exporter.core.verify.runner import Feed, Runner, TensorInfo

LOGITS_ALONE = (Output(LOGITS, OutputKind.LOGITS),)


class PlaybackRunner(Runner):
    """Returns the recorded answers for recorded images, in any order and any batch."""

    def __init__(
        self,
        reference: Mapping[str, Array],
        outputs: Sequence[Output] = LOGITS_ALONE,
        *,
        dense: bool = False,
    ) -> None:
        """Index the answers that `save_reference` wrote, a row per image; with `dense` those of the dense model."""
        self._answers = _answers(reference, outputs, dense)
        adaptive = any(
            count_name(layer) in self._answers for layer in keep_layers(reference)
        )
        fixed = {output.name for output in outputs if output.kind != OutputKind.TOKENS}
        infos = [
            _info(name, array, free=adaptive and name not in fixed)
            for name, array in self._answers.items()
        ]
        super().__init__("PyTorch", [_info(IMAGES, reference[IMAGES])], infos)
        self._rows = {_key(image): row for row, image in enumerate(reference[IMAGES])}

    def _run(self, feed: Feed) -> dict[str, Array]:
        rows = [self._rows.get(_key(image), -1) for image in feed[IMAGES]]
        if min(rows) < 0:
            raise ParityError(
                f"{self.name}: {IMAGES}",
                "one that was not recorded",
                "those of the reference",
            )
        return {name: array[rows] for name, array in self._answers.items()}


def recorded(spec: ModelSpec, schedule: Schedule) -> Iterator[TensorInfo]:
    """Yield what PyTorch's model gives for images: its outputs, and of each pruning layer the decisions."""
    values = {output.name for output in spec.outputs}
    for name, shape in output_shapes(spec, schedule).items():
        sizes = ("" if size is None else size for size in shape)
        kind = "float32" if name in values else "int64"
        yield TensorInfo(name, ("batch", *sizes), kind)
    for layer in schedule.pruning_layers:
        # Sizes that depend on the images have no name: they equal no other size.
        left, scored = (
            ("", "")
            if schedule.adaptive
            else (schedule.left[layer], schedule.reaching[layer])
        )
        yield TensorInfo(keep_name(layer), ("batch", left), "int64")
        yield TensorInfo(score_name(layer), ("batch", scored), "float32")
        if schedule.adaptive:
            yield TensorInfo(count_name(layer), ("batch",), "int64")
        if reduction_named(schedule.reduce).merges:
            yield TensorInfo(into_name(layer), ("batch", scored), "int64")
            yield TensorInfo(gap_name(layer), ("batch", scored), "float32")


def dense_name(tensor: str) -> str:
    """What a tensor of the unpruned model is called where both models' answers lie together."""
    return f"dense_{tensor}"


def _answers(
    reference: Mapping[str, Array], outputs: Sequence[Output], dense: bool
) -> dict[str, Array]:
    tensors = [name for output in outputs for name in tensors_of(output, counted=False)]
    if dense:
        wanted = {name: dense_name(name) for name in tensors}
    else:
        layers = keep_layers(reference)
        needed = list(tensors)
        optional = [token_count_name(output.name) for output in outputs]
        for layer in layers:
            needed += [keep_name(layer), score_name(layer)]
            optional += [count_name(layer), into_name(layer), gap_name(layer)]
        needed += [name for name in optional if name in reference]
        wanted = {name: name for name in needed}
    images = _rows(reference, IMAGES)
    for name in wanted.values():
        rows = _rows(reference, name)
        if rows != images or not rows:
            got = f"{name} of {rows} images"
            raise ParityError(
                "the reference", got, f"of all {images}", "compile the folder again"
            )
    return {name: reference[source] for name, source in wanted.items()}


def _rows(reference: Mapping[str, Array], name: str) -> int:
    """Return the number of images that an array has values of: 0 if it is missing, or a single number."""
    return reference[name].shape[0] if name in reference and reference[name].ndim else 0


def _info(name: str, array: Array, *, free: bool = False) -> TensorInfo:
    sizes: tuple[int | str, ...] = tuple(
        "" if free else size for size in array.shape[1:]
    )
    return TensorInfo(name, ("batch", *sizes), str(array.dtype))


def _key(image: Array) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(image).tobytes()).digest()
