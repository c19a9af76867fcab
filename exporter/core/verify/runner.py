"""The interface of all runtimes: arrays by name in, arrays by name out, both checked.

A new runtime implements `_run`, and `_activate` and `_deactivate` where it loads something. The public `run` makes
the checks for every runtime. A wrong feed raises a one-line error, not a stack trace from inside the runtime.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import numpy as np

from exporter.core.base.errors import UserError
from exporter.core.base.tensor_names import IMAGES, Array

RunnerT = TypeVar("RunnerT", bound="Runner")
Feed = Mapping[str, Array]


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape and NumPy dtype of an input or output. A string in `shape` is a dynamic dimension.

    Dimensions of one name have the same size in every tensor of a model; "" is an unknown dimension.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(str(size) or '?' for size in self.shape)}]"


class Runner(ABC):
    """A model in a runtime, loaded while its `with` block runs. `with` blocks may be nested or repeated."""

    def __init__(
        self,
        name: str,
        inputs: Iterable[TensorInfo] = (),
        outputs: Iterable[TensorInfo] = (),
    ) -> None:
        self.name = name
        self._times_entered = 0
        # Where nothing is known before, `_activate` sets them, from the loaded model.
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs of `run`, known once the model is loaded. A data-dependent size has no name."""
        if not self._inputs:
            self._require_active("read")
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs of `run`, known once the model is loaded."""
        if not self._inputs:
            self._require_active("read")
        return self._outputs

    def run(self, feed: Feed) -> dict[str, Array]:
        """Run one batch and return every output of the model by name.

        Args:
            feed: One array for each input, of its dtype and shape; nothing is converted.

        Raises:
            UserError: A name, dtype, rank or size of an input or output differs from the model's declaration.
            RuntimeError: The runner is not active.
        """
        self._require_active("run")
        sizes: dict[str, int] = {}
        self._check("input", feed, self.inputs, sizes)
        results = self._run(feed)
        self._check("output", results, self.outputs, sizes)
        return results

    @property
    def active(self) -> bool:
        """Whether the model is loaded."""
        return self._times_entered > 0

    def __enter__(self: RunnerT) -> RunnerT:
        if not self.active:
            self._activate()
        self._times_entered += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._times_entered -= 1
        if not self.active:
            self._deactivate()

    def fix(self, batches: Collection[int]) -> None:  # noqa: B027
        """Fix these batch sizes alone, in a runtime that fixes each otherwise; others run with a dynamic batch."""

    def _activate(self) -> None:  # noqa: B027  (nothing where all is in memory)
        """Load the model; called once before the first `_run`."""

    def _deactivate(self) -> None:  # noqa: B027
        """Free the resources that `_activate` allocated."""

    @abstractmethod
    def _run(self, feed: Feed) -> dict[str, Array]:
        """Run a feed that `run` has checked."""

    def _require_active(self, use: str) -> None:
        if not self.active:
            raise RuntimeError(f"{self.name} is not active: {use} it inside `with`")

    def _check(
        self,
        side: str,
        arrays: Feed,
        infos: Iterable[TensorInfo],
        sizes: dict[str, int],
    ) -> None:
        """Compare `arrays` with `infos`, and record the sizes of dynamic dimensions in `sizes`."""
        declared = {info.name: info for info in infos}
        if set(arrays) != set(declared):
            subject = f"{self.name}: {side} names"
            raise UserError(subject, _listed(sorted(arrays)), _listed(sorted(declared)))
        for name, info in declared.items():
            array = arrays[name]
            if not isinstance(array, np.ndarray):
                raise UserError(
                    f"{self.name}: {side} {name}",
                    f"a {type(array).__name__}",
                    "a NumPy array",
                )
            if array.dtype != np.dtype(info.dtype) or not _fits(
                array.shape, info.shape, sizes
            ):
                got = f"{array.dtype}{list(array.shape)}"
                known = ", ".join(
                    f"{dim}={sizes[str(dim)]}" for dim in info.shape if dim in sizes
                )
                hint = f"where {known}" if known else ""
                raise UserError(
                    f"{self.name}: {side} {name}",
                    got,
                    str(info).removeprefix(f"{name} "),
                    hint,
                )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _fits(
    shape: tuple[int, ...], declared: tuple[int | str, ...], sizes: dict[str, int]
) -> bool:
    if len(shape) != len(declared):
        return False
    for size, dim in zip(shape, declared, strict=True):
        expected = sizes.setdefault(dim, size) if isinstance(dim, str) and dim else dim
        if expected not in (size, ""):
            return False
    return True


class _Wrapper(Runner):
    """Has the inputs and outputs of a runner, which is entered with this one."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner.name)
        self._runner = runner

    def _activate(self) -> None:
        self._runner.__enter__()
        self._inputs = self._runner.inputs
        self._outputs = self._runner.outputs

    def _deactivate(self) -> None:
        self._runner.__exit__(None, None, None)


class ReorderedRunner(_Wrapper):
    """Returns the columns of an output in another order."""

    def __init__(self, runner: Runner, output: str, order: Sequence[int]) -> None:
        """Store the model's runner, which is entered with this one, and the places of the columns."""
        super().__init__(runner)
        self._output, self._order = output, list(order)

    def _run(self, feed: Feed) -> dict[str, Array]:
        results = self._runner.run(feed)
        return {**results, self._output: results[self._output][:, self._order]}


class PartRunner(_Wrapper):
    """Runs a batch in parts of the sizes that a model takes, and joins the outputs.

    Those of parts may differ in sizes that depend on the data.
    """

    def __init__(self, runner: Runner, sizes: Sequence[int]) -> None:
        """Store the model's runner, which is entered with this one, and the batch sizes that it takes."""
        super().__init__(runner)
        self._sizes = sorted(sizes, reverse=True)

    def _run(self, feed: Feed) -> dict[str, Array]:
        parts = []
        for place in self._places(len(feed[IMAGES])):
            part = {name: array[place] for name, array in feed.items()}
            parts.append(self._runner.run(part))
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}

    def _places(self, batch: int) -> Iterator[slice]:
        """Yield the parts, the largest first."""
        start = 0
        while start < batch:
            size = next((size for size in self._sizes if size <= batch - start), None)
            if size is None:
                sizes = ", ".join(map(str, reversed(self._sizes)))
                raise UserError(
                    f"{self.name}: batch",
                    str(batch),
                    f"a sum of {sizes}",
                    "build --batches 1",
                )
            yield slice(start, start + size)
            start += size


def _joined(parts: Sequence[Array]) -> Array:
    """Concatenate along the batch; where another axis depends on the data, pad with zeros to its largest size."""
    most = (
        np.max([part.shape[1:] for part in parts], axis=0, initial=0)
        .astype(int)
        .tolist()
    )
    padded = []
    for part in parts:
        lacking = np.subtract(most, part.shape[1:]).tolist()
        padded.append(np.pad(part, [(0, 0), *((0, count) for count in lacking)]))
    return np.concatenate(padded)
