"""What a pruned model gives: the tensors of its outputs, their sizes, and tokens put back into their grid."""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from exporter.core.base.records import ModelSpec, Output, Schedule
from exporter.core.base.tensor_names import token_count_name, token_positions_name
from exporter.core.base.vocabulary import OutputKind

if TYPE_CHECKING:
    from torch import Tensor

ArrayT = TypeVar("ArrayT", np.ndarray[Any, Any], "Tensor")


def tensors_of(output: Output, *, counted: bool) -> tuple[str, ...]:
    """Return the tensors of an output: itself, for tokens also their positions, and if `counted` their number."""
    if output.kind != OutputKind.TOKENS:
        return (output.name,)
    count = (token_count_name(output.name),) if counted else ()
    return (output.name, token_positions_name(output.name), *count)


def output_names(spec: ModelSpec, schedule: Schedule) -> tuple[str, ...]:
    """Return the tensors that a pruned model returns, in order; with token counts if these depend on the image."""
    return tuple(output_shapes(spec, schedule))


def output_shapes(
    spec: ModelSpec, schedule: Schedule, *, padded: bool = False
) -> dict[str, tuple[int | None, ...]]:
    """Return the sizes of each of `output_names` behind the batch.

    None depends on the image; if `padded`, it is the largest number of tokens.
    """
    shapes: dict[str, tuple[int | None, ...]] = {}
    for output in spec.outputs:
        sizes: list[tuple[int | None, ...]] = [(output.channels,)]
        left = schedule.left_after(output.layer)
        names = tensors_of(output, counted=left is None)
        if output.kind == OutputKind.TOKENS:
            if padded:
                left = schedule.keep[(output.layer or spec.depth) - 1]
            sizes = [(left, output.channels), (left,), ()]
        elif output.kind == OutputKind.GRID:
            sizes = [(spec.num_patches, output.channels)]
        shapes |= zip(names, sizes, strict=False)
    return shapes


def to_grid(
    tokens: ArrayT, positions: ArrayT, base: ArrayT, count: ArrayT | None = None
) -> ArrayT:
    """Return `base` with a model's tokens at their positions; arrays of NumPy and tensors of PyTorch alike.

    Where the last values of dropped patches, or merged ones, are needed, a model gives them as its output `grid`.

    Args:
        tokens: [batch, k, channels], a model's output `tokens` or `layer_NN`.
        positions: [batch, k] int64, `tokens_positions`: places in the grid, counted row by row from 0.
        base: What the other places have, [batch, patches, channels]: zeros, or the tokens of a layer that has them
            all.
        count: [batch] int64, `tokens_count`: how many of the k are an image's own. None: all.

    Raises:
        ValueError: The shapes do not fit each other.
    """
    given: tuple[Any, ...] = (tokens, positions, base)
    shapes = [list(np.shape(values)) for values in given]
    of_tokens, of_positions, of_base = shapes
    fits = len(of_tokens) == len(of_base) == 3 and of_positions == of_tokens[:2]
    if not fits or of_tokens[::2] != of_base[::2]:
        raise ValueError(
            "tokens {}, positions {} and base {} do not fit".format(*shapes)
        )
    grid: Any = base.copy() if isinstance(base, np.ndarray) else base.clone()
    for image in range(len(tokens)):
        count_of_image = tokens.shape[1] if count is None else int(count[image])
        grid[image, positions[image, :count_of_image]] = tokens[image, :count_of_image]
    return grid
