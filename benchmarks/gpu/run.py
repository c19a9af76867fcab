"""Check and measure an export folder with one runtime on a GPU.

python benchmarks/gpu/run.py tensorrt build/deit

Compares the models with PyTorch's answers, then measures them; for TensorRT it first builds and audits the engines.
"""

import argparse
import sys

from machine import on_a_gpu

from exporter.cli.main import main

BATCHES = ("--batches", "1,2,4,8,16,32,64,128,256")
RUNTIMES = ("onnxruntime-cuda", "onnxruntime-tensorrt", "tensorrt")


def verbs(runtime: str, folder: str) -> list[list[str]]:
    """Return the command lines in order. `check` compares every batch size of the engines."""
    here = ("--runtime", runtime)
    build = [["build", folder, *BATCHES]] if runtime == "tensorrt" else []
    return [*build, ["check", folder, *here], ["bench", folder, *here, *BATCHES]]


def run(machine: str, runtime: str, folder: str) -> int:
    """Run the verbs until one fails, and return its exit code, else 0."""
    print(machine)
    for verb in verbs(runtime, folder):
        print(f"$ star-export {' '.join(verb)}", flush=True)
        code = main(verb)
        if code:
            return code
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", choices=RUNTIMES)
    parser.add_argument("folder", help="The folder of `star-export compile --out`.")
    arguments = parser.parse_args()
    sys.exit(on_a_gpu(lambda machine: run(machine, arguments.runtime, arguments.folder)))
