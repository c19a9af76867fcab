"""A runner that is a NumPy function, so that a test decides what a model answers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from exporter.runners.base import Feed, Runner, TensorInfo

__all__ = ["NumpyRunner"]


class NumpyRunner(Runner):
    """Counts how often it is loaded and freed."""

    def __init__(
        self,
        function: Callable[[Feed], dict[str, np.ndarray[Any, Any]]],
        inputs: tuple[TensorInfo, ...],
        outputs: tuple[TensorInfo, ...],
        name: str = "fake",
    ) -> None:
        super().__init__(name)
        self.function, self._inputs, self._outputs = function, inputs, outputs
        self.activations = self.deactivations = 0

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self._outputs

    def _activate(self) -> None:
        self.activations += 1

    def _deactivate(self) -> None:
        self.deactivations += 1

    def _run(self, feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        return self.function(feed)
