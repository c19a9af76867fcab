"""Run everything that needs a GPU, in order, in steps; call it again to go on where it stopped.

    python benchmarks/gpu/all.py --folder build/deit --cifar build/cifar10 --out build/gpu --minutes 9

A step that is done is not repeated (--again repeats it), one that was stopped continues, one that failed is tried
again. After each step, report.md in --out has every table so far, and for each missing one why it is missing.
Exit code 1 if a step failed or is not finished, 2 without a GPU. No step needs the network.
"""

import argparse
import os
import sys
from pathlib import Path

from case import on_a_gpu
from deits import MODELS
from run_steps import UNFINISHED, outcome_of, run_steps, summary, write_report
from steps import Request, Step, steps

from exporter.core.base.errors import RecipeError, UserError

BATCHES = (1, 8, 32, 128)


def main() -> int:
    """Run the steps and return the exit code."""
    options = _parser().parse_args()
    return on_a_gpu(lambda machine: run(options, machine))


def run(options: argparse.Namespace, machine: str) -> int:
    """Run the chosen steps on this machine, whose GPU `machine` describes; return the exit code."""
    out: Path = options.out.resolve()
    all_steps = steps(_request(options, out))
    chosen = _chosen(all_steps, options.steps)
    out.mkdir(parents=True, exist_ok=True)
    _require_same_gpu(out / "machine.txt", machine)

    def tell() -> None:
        write_report(all_steps, out, machine)

    run_steps(chosen, out, limit_s=60 * options.minutes, again=options.again, tell=tell)
    tell()
    print(summary(all_steps, out))
    return int(any(outcome_of(step, out).state in UNFINISHED for step in chosen))


def _request(options: argparse.Namespace, out: Path) -> Request:
    names = ("folder", "cifar", "shrinking")
    folders = {name: getattr(options, name) for name in names}
    return Request(
        out,
        tuple(options.models),
        tuple(options.batches),
        **{name: path.resolve() for name, path in folders.items() if path is not None},
    )


def _chosen(all_steps: tuple[Step, ...], names: str | None) -> tuple[Step, ...]:
    known = [step.name for step in all_steps]
    wanted = names.split(",") if names else known
    if missing := [name for name in wanted if name not in known]:
        raise RecipeError("steps", ", ".join(missing), f"of {', '.join(known)}")
    return tuple(step for step in all_steps if step.name in wanted)


def _require_same_gpu(path: Path, machine: str) -> None:
    """Check that the results in the folder are of this GPU; times of two GPUs must not meet in a table."""
    if not path.is_file():
        path.write_text(f"{machine}\n", encoding="utf-8")
    before, here = path.read_text(encoding="utf-8").strip(), machine
    if before.split(",")[0] != here.split(",")[0]:
        raise UserError(
            path.parent,
            f"results of {before}",
            f"those of {here}",
            "give another --out",
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--folder", type=Path, help="Export folder of a target for TensorRT 10 or 11.")
    place = os.environ.get("STAR_EXPORT_CIFAR10")
    cifar = Path(place) if place else None
    add("--cifar", type=Path, default=cifar, help="CIFAR-10 as train/ and test/.")
    shrinking = "Export folder of a-STAR in the layout shrinking."
    add("--shrinking", type=Path, metavar="FOLDER", help=shrinking)
    names, batches = list(MODELS), list(BATCHES)
    add("--models", nargs="*", default=names, choices=MODELS, help="DeiTs to measure.")
    add("--batches", type=int, nargs="*", default=batches, help="Batch sizes.")
    add("--steps", metavar="NAMES", help="Only these steps, e.g. kernel,pytorch.")
    minutes = "Stop after so many minutes."
    add("--minutes", type=float, default=float("inf"), help=minutes)
    add("--again", action="store_true", help="Repeat the steps that are done, too.")
    out = Path(os.environ.get("OUT", "build/gpu"))
    add("--out", type=Path, default=out, help="Folder for all output.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
