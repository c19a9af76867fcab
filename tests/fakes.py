"""A runner that is a NumPy function, and a clock that a test turns: it decides what a model answers, and when."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exporter.core.verify.runner import Feed, Runner, TensorInfo


class NumpyRunner(Runner):
    """Counts how often it is loaded and freed."""

    def __init__(
        self,
        function: Callable[[Feed], dict[str, np.ndarray[Any, Any]]],
        inputs: tuple[TensorInfo, ...],
        outputs: tuple[TensorInfo, ...],
        name: str = "fake",
    ) -> None:
        super().__init__(name, inputs, outputs)
        self.function = function
        self.activations = self.deactivations = 0

    def _activate(self) -> None:
        self.activations += 1

    def _deactivate(self) -> None:
        self.deactivations += 1

    def _run(self, feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        return self.function(feed)


class TurnedClock:
    """Stands still but while a runner runs."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ran: list[str] = []

    def __call__(self) -> float:
        return self.now_s

    def runner(self, name: str, times_s: Iterator[float]) -> NumpyRunner:
        def run(_: object) -> dict[str, np.ndarray[Any, Any]]:
            self.now_s += next(times_s)
            self.ran.append(name)
            return {}

        return NumpyRunner(
            run, (TensorInfo("images", ("batch", 3), "float32"),), (), name
        )


def forever(value: float) -> Iterator[float]:
    while True:
        yield value
