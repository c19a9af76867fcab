"""Parity and throughput of an export folder on ONNX Runtime's CUDA provider.

python -m benchmarks.gpu.onnxruntime_cuda build/deit
"""

import sys

from benchmarks.gpu.run import folder_argument, run_verbs


def verbs(folder: str) -> list[list[str]]:
    """The same runtime for both."""
    runtime = ["--runtime", "onnxruntime-cuda"]
    return [["check", folder, *runtime], ["bench", folder, *runtime, "--batches", "1,8,32,128"]]


if __name__ == "__main__":
    sys.exit(run_verbs(verbs(str(folder_argument(__doc__)))))
