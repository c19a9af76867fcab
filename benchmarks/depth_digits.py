r"""Prune depth, patches and both of the bundled digits model, from its training images on. Markdown on stdout.

    python calib_data/digits.py --out build/digits
    python benchmarks/depth_digits.py --digits build/digits --out build/depth_digits

The commands of docs/depth.md run in turn: `depth choose` on every third training image, `finetune` on all. It runs
twice: within a budget, for the table of samples, and for numbers of each type, for the other table.
Half of the held-out images steer choices; accuracy is stated on the other half, which nothing has read. A command
whose file is there is not run again, and one that was interrupted goes on. At last the four models are timed in one
run.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.cli.main import main as star_export
from exporter.data.batches import first_images
from exporter.data.images import list_images
from exporter.depth.checkpoint import describe
from exporter.errors import UserError
from exporter.evaluation.benchmark import compare_speed
from exporter.models.networks import ModelRequest
from exporter.settings import add_flags, from_flags
from exporter.targets import ONNXRUNTIME
from exporter.vocabulary import InputKind
from exporter.workflows.measuring import Lowered, timed
from exporter.workflows.recipe import Measuring

MODEL, RHO, UNITS = "digits_vit", 0.7, 4
TEACHER = Path(__file__).parents[1] / "exporter" / "bundled" / f"{MODEL}.safetensors"
COLUMNS = ("model", "GMACs", "top-1, 95 % interval", "img/s", "speed-up, quartiles", "parity")
# The images of each name: the half of the set that they come from, the first one, and the step.
SPLITS = {"third": ("train", 0, 3), "choices": ("held_out", 0, 2), "unseen": ("held_out", 1, 2)}
# The four models: the export folder, and which of its pair.
MODELS = {
    "dense": ("tokens", "dense"),
    "depth": ("both", "dense"),
    "tokens": ("tokens", "pruned"),
    "both": ("both", "pruned"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--digits", type=Path, required=True, help="The folder of calib_data/digits.py.")
    parser.add_argument("--out", type=Path, required=True, help="Folder of all that is trained and measured.")
    parser.add_argument("--attention-units", type=int, default=2, help="Attention layers to remove.")
    parser.add_argument("--activation-units", type=int, default=2, help="Activations to remove.")
    parser.add_argument("--epochs", type=int, default=3, help="Of the fine-tuning.")
    add_flags(parser, Measuring)
    options = parser.parse_args(argv)
    try:
        measuring = from_flags(Measuring, options)
        for made, words in _commands(options):
            if not made.exists():
                code = star_export([str(word) for word in words])
                if code:
                    return code
        _print_table(options.out, measuring)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _commands(options: argparse.Namespace) -> Iterator[tuple[Path, Sequence[object]]]:
    """Yield each command with a file that it leaves when it is done."""
    out, train = options.out, options.digits / "train"
    third, choices, unseen = (_split(options.digits, out / "images", name) for name in SPLITS)
    star, batch = ("--method", "star", "--scorer", "intra"), ("--batch-size", 16)
    names = ("budget", "chosen", "tuned", "merged")
    budget, chosen, tuned, merged = (out / f"{name}.safetensors" for name in names)
    units = ("--attention-units", options.attention_units, "--activation-units", options.activation_units)
    stages = ("--images", third, "--model", MODEL, "--epochs", 1, "--growth", 0, *batch)
    within = ("--eval-images", choices, "--units", UNITS)
    yield budget, ("depth", "choose", *stages, *within, "--out", budget)
    yield chosen, ("depth", "choose", *stages, *units, "--out", chosen)
    short = ("--preset", "short", "--epochs", options.epochs, *batch, "--lr", 3e-4, "--out", tuned)
    images = ("--images", train, "--eval-images", choices, "--rho", RHO, *star)
    start = ("--model", MODEL, "--checkpoint", chosen, "--teacher", TEACHER)
    yield tuned, ("finetune", *start, *images, *short)
    yield merged, ("depth", "apply", "--checkpoint", tuned, "--out", merged)
    unread = ("--images", train, "--eval-images", unseen, "--rounds", 0)
    tokens = ("--model", MODEL, "--rho", RHO, *star, *unread, "--out", out / "tokens")
    yield out / "tokens" / "report.json", ("compile", *tokens)
    both = ("--checkpoint", merged, *unread, "--out", out / "both")
    yield out / "both" / "report.json", ("compile", *both)


def _split(digits: Path, folder: Path, name: str) -> Path:
    """Copy some of the images into a folder of their own, and return it."""
    half, first, step = SPLITS[name]
    for file in sorted((digits / half).glob("*/*.png"))[first::step]:
        place = folder / name / file.parent.name / file.name
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    return folder / name


def _print_table(out: Path, measuring: Measuring) -> None:
    """Time the four models in one run, and print them with what their reports say."""
    reports = {name: json.loads((out / name / "report.json").read_text()) for name in ("tokens", "both")}
    files = {
        name: Lowered((out / folder / reports[folder]["files"][which]).read_bytes(), ONNXRUNTIME)
        for name, (folder, which) in MODELS.items()
    }
    spec = describe(ModelRequest(MODEL)).spec
    unread = list_images(out / "images" / "unseen").files
    images = first_images(unread, spec.preprocessing, InputKind.FLOAT32, measuring.batch)
    times = timed(files, images, measuring)
    print(f"\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, (folder, which) in MODELS.items():
        found = compare_speed(times["dense"], times[name])
        low, high = found.quartiles
        cells = (
            *_told(reports[folder], which),
            f"{times[name].images_per_s:.0f}",
            f"{found.speedup:.2f}, {low:.2f} to {high:.2f}",
            "passed" if reports[folder]["passed"] else "failed",
        )
        print(f"| {name} | {' | '.join(cells)} |")


def _told(report: Mapping[str, Any], which: str) -> tuple[str, str]:
    """Return a model's multiply-adds and accuracy."""
    accuracy = report["accuracy"][which]
    low, high = accuracy["interval"]
    interval = f"{accuracy['top1']:.1%}, {100 * low:.1f} to {100 * high:.1f}"
    return f"{report['gmacs'][which]:.3f}", interval


if __name__ == "__main__":
    sys.exit(main())
