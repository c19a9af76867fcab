"""What is to be run on a machine with a GPU, on an export folder, one command a runtime.

python benchmarks/gpu/run.py tensorrt build/deit

It checks against PyTorch's answers, then measures; for TensorRT it builds and audits the engines first.
"""

import argparse
import sys

from exporter.cli.main import main
from exporter.engines.machine import this_machine
from exporter.errors import UserError

BATCHES = ("--batches", "1,8,32,128")
RUNTIMES = ("onnxruntime-cuda", "onnxruntime-tensorrt", "tensorrt")


def verbs(runtime: str, folder: str) -> list[list[str]]:
    """The command lines, in order. The twins are built for the same batches, so that `check` finds 1 and 8."""
    here = ("--runtime", runtime)
    build = [["build", folder, *BATCHES]] if runtime == "tensorrt" else []
    return [*build, ["check", folder, *here], ["bench", folder, *here, *BATCHES]]


def run(runtime: str, folder: str) -> int:
    """Run until a verb fails; its exit code, or 2 without a GPU."""
    try:
        machine = this_machine("")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{machine.gpu}, SM {machine.sm}, driver {machine.driver}, CUDA {machine.cuda}")
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
    sys.exit(run(arguments.runtime, arguments.folder))
