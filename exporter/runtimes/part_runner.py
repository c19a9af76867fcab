"""`Runner` of a model that takes certain batch sizes only, for any batch: it runs the batch in parts."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from exporter.errors import UserError
from exporter.runtimes.base import Feed, Runner, TensorInfo
from exporter.tensor_names import IMAGES

__all__ = ["PartRunner"]

Array = np.ndarray[Any, Any]


class PartRunner(Runner):
    """Runs a batch in parts of the sizes that a model takes, and joins the outputs."""

    def __init__(self, runner: Runner, sizes: Sequence[int]) -> None:
        """Store the runner; it is entered with this one.

        Args:
            runner: The model's runner; every input and output has the batch as its first axis.
            sizes: The batch sizes that it takes.
        """
        super().__init__(runner.name)
        self._runner, self._sizes = runner, sorted(sizes, reverse=True)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The model's inputs."""
        return self._runner.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The model's outputs; those of parts may differ in sizes that depend on the data."""
        return self._runner.outputs

    def _activate(self) -> None:
        self._runner.__enter__()

    def _deactivate(self) -> None:
        self._runner.__exit__(None, None, None)

    def _run(self, feed: Feed) -> dict[str, Array]:
        parts = [
            self._runner.run({name: array[place] for name, array in feed.items()})
            for place in self._places(len(feed[IMAGES]))
        ]
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}

    def _places(self, batch: int) -> Iterator[slice]:
        """Yield the parts, the largest first."""
        start = 0
        while start < batch:
            size = next((size for size in self._sizes if size <= batch - start), None)
            if size is None:
                sizes = ", ".join(map(str, reversed(self._sizes)))
                raise UserError(f"{self.name}: batch", str(batch), f"a sum of {sizes}", "build --batches 1")
            yield slice(start, start + size)
            start += size


def _joined(parts: Sequence[Array]) -> Array:
    """Concatenate along the batch; where another axis depends on the data, pad with zeros to its largest size."""
    most = np.max([part.shape[1:] for part in parts], axis=0, initial=0).astype(int).tolist()
    padded = [
        np.pad(part, [(0, 0), *((0, size - own) for size, own in zip(most, part.shape[1:], strict=True))])
        for part in parts
    ]
    return np.concatenate(padded)
