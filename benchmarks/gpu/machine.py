"""Find this machine's GPU for the scripts in this folder; without one they print one line and exit with 2."""

import sys
from collections.abc import Callable

from exporter.errors import UserError
from exporter.runtimes.tensorrt.runner import this_machine

__all__ = ["on_a_gpu"]


def on_a_gpu(run: Callable[[str], int]) -> int:
    """Call `run` with a line that describes the GPU, and return the exit code."""
    try:
        found = this_machine("")
        return run(f"{found.gpu}, SM {found.sm}, driver {found.driver}, CUDA {found.cuda}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
