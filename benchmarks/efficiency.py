"""Measure speed-up and efficiency of pruned DeiT-T, -S and -B at several batch sizes. Markdown on stdout.

    python benchmarks/efficiency.py --models deit_small_patch16_224 --batches 8

Writes a JSON record for each model and batch size to --folder, and the ONNX files. Existing records are not
measured again, so a run can be split by model and batch size. Remove the folder after a change of the lowering.
The table shows all records in the folder.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from deits import MODELS, deit, dense, prune, schedule

from exporter.core.base.artefact import read_pair
from exporter.core.base.canonical_json import save_json
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.records import Pair
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.base.tensor_names import IMAGES
from exporter.core.lower.pipeline import lower
from exporter.data.batches import noise
from exporter.engines.choice import RunSettings
from exporter.measure.batch_sweep import BenchSettings
from exporter.serve.bench import bench

HEADER = """
| model | rho | round_to | batch | dense img/s | pruned img/s | speed-up | quartiles | MACs | E | \
selection cost | quartiles | plain slices |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Measure the missing records and print the table."""
    options = _options()
    how = f"rho{options.rho:g}.round_to{options.round_to}"
    for model in options.models:
        for batch in options.batches:
            place = options.folder / f"{model}.{how}.batch{batch}.json"
            if not place.is_file():
                print(f"measuring {place.stem}", file=sys.stderr)
                _measure(model, batch, options, place)
    print(HEADER.strip())
    for place in sorted(options.folder.glob("*.json"), key=_order):
        print(f"| {' | '.join(_row(place))} |")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    names, batches = list(MODELS), [1, 4, 8, 32]
    add("--models", nargs="*", default=names, choices=MODELS, help="DeiTs to measure.")
    add("--batches", type=int, nargs="*", default=batches, help="Batch sizes.")
    add("--rho", type=float, default=0.7, help="The lowest retention rate.")
    multiple = "Token counts as a multiple of this."
    add("--round-to", type=int, default=1, help=multiple)
    add("--rounds", type=int, default=20, help="Timed rounds.")
    threads = "CPU threads; 0 is one per physical core."
    add("--threads", type=int, default=0, help=threads)
    folder = Path("build/efficiency")
    add("--folder", type=Path, default=folder, help="Folder for all files.")
    return parser.parse_args()


def _measure(model: str, batch: int, options: argparse.Namespace, place: Path) -> None:
    files = _exported(model, options)
    settings = BenchSettings(batches=(batch,), rounds=options.rounds)
    save_json(
        bench(
            read_pair(files),
            {IMAGES: noise(deit(model).spec, "float32", batch)},
            settings,
            runtime=RunSettings(threads=options.threads),
        ),
        place,
    )


def _exported(model: str, options: argparse.Namespace) -> Pair[Path]:
    files = Pair(
        options.folder / f"{model}.dense.onnx",
        options.folder / f"{model}.rho{options.rho:g}.round_to{options.round_to}.onnx",
    )
    if not files.dense.is_file():
        save_onnx(lower(dense(model), ONNXRUNTIME), files.dense)
    if not files.pruned.is_file():
        planned = schedule(model, options.rho, options.round_to)
        save_onnx(lower(prune(planned, model), ONNXRUNTIME), files.pruned)
    return files


def _order(place: Path) -> tuple[int, str, int]:
    head, _, batch = place.stem.rpartition(".batch")
    return MODELS.index(head.split(".", maxsplit=1)[0]), head, int(batch)


def _row(place: Path) -> list[str]:
    result = json.loads(place.read_text(encoding="utf-8"))
    (at,) = result["batches"]
    speed_up, mac_ratio, selection = at["speed_up"], at["mac_ratio"], at["selection"]
    round_to = place.stem.split(".round_to")[1].partition(".")[0]
    cost, ceiling = selection["cost"], selection["ceiling"]
    return [
        result["model"],
        f"{result['rho']:g}",
        round_to,
        str(at["batch"]),
        f"{at['throughput']['dense']['images_per_s']:.1f}",
        f"{at['throughput']['pruned']['images_per_s']:.1f}",
        f"{speed_up['median']:.3f}",
        _quartiles(speed_up),
        f"{mac_ratio:.3f}",
        f"{speed_up['median'] / mac_ratio:.3f}",
        f"{cost['median']:.3f}",
        _quartiles(cost),
        f"{ceiling['median']:.3f}",
    ]


def _quartiles(ratio: dict[str, Any]) -> str:
    low, high = ratio["quartiles"]
    return f"{low:.3f} to {high:.3f}"


if __name__ == "__main__":
    main()
