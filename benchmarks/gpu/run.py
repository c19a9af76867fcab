"""What is to be run on a machine with a GPU, on an export folder, one command a runtime.

python benchmarks/gpu/run.py tensorrt build/deit

It checks against PyTorch's answers, then measures; for TensorRT it builds and audits the engines first.
"""

import argparse
import sys

from machine import on_a_gpu

from exporter.cli.main import main

BATCHES = ("--batches", "1,2,4,8,16,32,64,128,256")
RUNTIMES = ("onnxruntime-cuda", "onnxruntime-tensorrt", "tensorrt")


def verbs(runtime: str, folder: str) -> list[list[str]]:
    """The command lines, in order. The variants are built for the same batches, so that `check` finds 1 and 8."""
    here = ("--runtime", runtime)
    build = [["build", folder, *BATCHES]] if runtime == "tensorrt" else []
    return [*build, ["check", folder, *here], ["bench", folder, *here, *BATCHES]]


def run(machine: str, runtime: str, folder: str) -> int:
    """Run until a verb fails; its exit code."""
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
    parser.add_argument("folder", help="What `star-export compile --out` left.")
    arguments = parser.parse_args()
    sys.exit(on_a_gpu(lambda machine: run(machine, arguments.runtime, arguments.folder)))
