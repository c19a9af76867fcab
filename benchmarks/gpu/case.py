"""One row of a table: a model in a mode at a batch size, of all methods in turns; and the GPU of this machine."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from deits import deit

from exporter.errors import UserError
from exporter.evaluation.benchmark import Throughput
from exporter.runtimes.tensorrt.runner import this_machine
from exporter.workflows.measuring import noise

__all__ = ["Case", "Timing", "on_a_gpu"]

# Times all networks of a case in turns; results by name.
Timing: TypeAlias = Callable[[], dict[str, Throughput]]


@dataclass(frozen=True)
class Case:
    """What to measure. `mode` is one of the runtime's MODES; `folder` takes models and engines.

    `plugin` is the CdfRetain library, for a mode whose tokens shrink.
    """

    model: str
    mode: str
    batch: int
    rounds: int
    folder: Path
    plugin: Path | None = None

    @property
    def images(self) -> np.ndarray:
        """Noise [batch, 3, H, W]: time depends on the structure alone."""
        return noise(deit(self.model).spec, "float32", self.batch)


def on_a_gpu(run: Callable[[str], int]) -> int:
    """Call `run` with a line that describes the GPU; return the exit code, 2 where there is none."""
    try:
        found = this_machine("")
        return run(f"{found.gpu}, SM {found.sm}, driver {found.driver}, CUDA {found.cuda}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
