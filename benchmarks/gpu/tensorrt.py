"""Engines of an export folder: built, audited, held to PyTorch's answers, measured.

python -m benchmarks.gpu.tensorrt build/deit
"""

import sys

from benchmarks.gpu.run import folder_argument, run_verbs

BATCHES = ["--batches", "1,8,32,128"]


def verbs(folder: str) -> list[list[str]]:
    """The twins are built for the same batches, so that `check` finds 1 and 8."""
    runtime = ["--runtime", "tensorrt"]
    return [["build", folder, *BATCHES], ["check", folder, *runtime], ["bench", folder, *runtime, *BATCHES]]


if __name__ == "__main__":
    sys.exit(run_verbs(verbs(str(folder_argument(__doc__)))))
