"""Run all checks and benchmarks that need a GPU, in order, and save the output of each step to a folder.

    python benchmarks/gpu/all.py --folder build/deit --out build/gpu

After a failed step the next ones still run. Prints a summary; exit code 1 if a step failed, 2 without a GPU.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from machine import on_a_gpu

ROOT = Path(__file__).parents[2]
HERE = "benchmarks/gpu"


def steps(folder: Path | None, out: Path) -> dict[str, list[str]]:
    """Return the commands by name; those on an export folder only if `folder` is given."""
    table = f"{HERE}/table.py"
    commands = {
        "plugin-kernel": ["-m", "tests.plugins.gpu_check"],
        "pytorch": [table, "pytorch", "--out", str(out / "pytorch")],
        "onnxruntime-cuda": [table, "onnxruntime", "--out", str(out / "onnxruntime")],
    }
    if folder is not None:
        for runtime in ("onnxruntime-cuda", "tensorrt"):
            commands[f"folder-{runtime}"] = [f"{HERE}/run.py", runtime, str(folder)]
    return commands


def main() -> int:
    """Run all steps and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, help="The folder of `star-export compile --out`, for the steps on it."
    )
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", "build/gpu")), help="Folder for all output."
    )
    options = parser.parse_args()
    folder = None if options.folder is None else options.folder.resolve()
    return on_a_gpu(lambda machine: run(steps(folder, options.out.resolve()), options.out.resolve(), machine))


def run(commands: dict[str, list[str]], out: Path, machine: str) -> int:
    """Run each command in its own process, and write summary.txt; return 1 if one failed."""
    out.mkdir(parents=True, exist_ok=True)
    summary = [machine]
    paths = [str(ROOT), str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    failed = False
    for name, command in commands.items():
        print(f"{name}: {' '.join(command)}", flush=True)
        start_s = time.monotonic()
        with (out / f"{name}.out").open("w") as printed, (out / f"{name}.err").open("w") as errors:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env=environment,
                stdout=printed,
                stderr=errors,
                check=False,
            )
        failed |= done.returncode != 0
        summary.append(f"{name}: exit code {done.returncode} after {time.monotonic() - start_s:.0f} s")
        (out / "summary.txt").write_text("\n".join(summary) + "\n", encoding="utf-8")
    print("\n".join(summary))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
