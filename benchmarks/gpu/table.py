"""Time dense and pruned DeiT on a GPU, interleaved, in every mode of a runtime. Markdown on stdout.

    python benchmarks/gpu/table.py pytorch --out build/gpu/pytorch

Writes a JSON record for each model, mode and batch to --out; existing ones are not measured again, so an
interrupted call can be repeated. Weights and images are noise: time depends on the structure alone. A failed mode
is a row with its error, and is tried again by the next call; one that this machine cannot run is a row with the
reason. No GPU, or no such runtime: exit code 2.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
from case import Case, on_a_gpu
from deits import MODELS, dense, prune, schedule

from exporter.core.base.canonical_json import save_json
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.macs import mean_macs
from exporter.data.batches import noise
from exporter.engines.gpu import (
    NO_CLOCKS,
    Clocks,
    clocks_of,
    gpu_uuid,
    sampled_clocks,
)
from exporter.measure.benchmark import Ratio, Throughput, ratio_of

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Modules with MODES, METHODS, require() and prepared(case), each of which imports its own runtime; one whose modes
# do not all run where the runtime does has why_not(mode, plugin), one with a cost model estimated(case).
RUNTIMES = {
    "pytorch": "torch_runners",
    "onnxruntime": "onnxruntime_runners",
    "tensorrt": "tensorrt_engines",
}
# Speed-ups in the paper's tables 1 and 8: PyTorch fp32 on an A100, batch 128, STAR at rho 0.7.
PUBLISHED = {"deit_small_patch16_224": 2.04, "deit_base_patch16_224": 1.85}
COLUMNS = (
    "model",
    "mode",
    "batch",
    "method",
    "img/s",
    "ms",
    "estimated ms",
    "speed-up",
    "quartiles",
    "MACs",
    "E",
    "paper",
)
COUNTED_IMAGES = 8


@dataclass(frozen=True)
class Row:
    """The result of one model, mode and batch: each network's times and its speed-up over dense, or an error.

    `estimated` are the milliseconds that the cost model expects, of networks that it knows.
    """

    model: str
    mode: str
    batch: int
    machine: str
    clocks: Clocks
    times: dict[str, Throughput]
    speed_ups: dict[str, Ratio]
    mac_ratios: dict[str, float]
    error: str = ""
    estimated: dict[str, float] = field(default_factory=dict)


def main() -> int:
    """Measure the missing rows, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runtime", choices=RUNTIMES, help="The runtime.")
    parser.add_argument(
        "--models",
        nargs="*",
        default=list(MODELS),
        choices=MODELS,
        help="DeiTs to measure.",
    )
    parser.add_argument(
        "--batches", type=int, nargs="*", default=list(BATCHES), help="Batch sizes."
    )
    parser.add_argument("--modes", nargs="*", help="Modes by name; all by default.")
    parser.add_argument(
        "--plugin", type=Path, help="The CdfRetain library, for tokens that shrink."
    )
    parser.add_argument("--rounds", type=int, default=20, help="Timed rounds.")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/gpu/table"),
        help="Folder for the records.",
    )
    options = parser.parse_args()
    return on_a_gpu(lambda machine: _table(options, machine))


def _table(options: argparse.Namespace, machine: str) -> int:
    failed, runtime = False, importlib.import_module(RUNTIMES[options.runtime])
    runtime.require()
    why_not = getattr(runtime, "why_not", lambda *_: "")
    print(
        f"{options.runtime}, {machine}\n\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|",
        flush=True,
    )
    for model in options.models:
        for mode in options.modes or runtime.MODES:
            if reason := why_not(mode, options.plugin):
                _say(_reasoned([model, mode, "", "not run"], reason))
                continue
            for batch in options.batches:
                case = Case(
                    model, mode, batch, options.rounds, options.out, options.plugin
                )
                row = _row(runtime, machine, case)
                failed |= bool(row["error"])
                for cells in _cells(row):
                    _say(cells)
    return int(failed)


def _say(cells: list[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def _reasoned(first: list[str], why: str) -> list[str]:
    return [*first, why.replace("|", "·"), *[""] * (len(COLUMNS) - len(first) - 1)]


def _row(runtime: ModuleType, machine: str, case: Case) -> dict[str, object]:
    name = f"{case.model}.{case.mode.replace(', ', '-').replace(' ', '_')}.batch{case.batch}.json"
    place = case.folder / name
    if place.is_file():
        before: dict[str, object] = json.loads(place.read_text(encoding="utf-8"))
        if not before["error"]:
            return before
    save_json(_measured(runtime, machine, case), place)
    row: dict[str, object] = json.loads(place.read_text(encoding="utf-8"))
    return row


def _measured(runtime: ModuleType, machine: str, case: Case) -> Row:
    model, mode, batch = case.model, case.mode, case.batch
    try:
        timing = runtime.prepared(case)
        with sampled_clocks(gpu_uuid()) as clocks:
            times = timing()
    # A mode that cannot be compiled or run becomes a row with its error; the sweep continues.
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        print(f"{model}, {mode}, batch {batch}: {why}", file=sys.stderr)
        return Row(model, mode, batch, machine, NO_CLOCKS, {}, {}, {}, why)
    whole = dense(model).macs.total
    methods = {
        name: method for name, method in runtime.METHODS.items() if name in times
    }
    estimated = runtime.estimated(case) if hasattr(runtime, "estimated") else {}
    return Row(
        model,
        mode,
        batch,
        machine,
        clocks_of(clocks),
        times,
        {name: ratio_of(times["dense"], times[name]) for name in methods},
        {name: whole / _macs(model, *method) for name, method in methods.items()},
        estimated=estimated,
    )


@cache
def _macs(model: str, method: Method, rho: float) -> int:
    """Return the MACs per image; under a-STAR, the mean useful MACs over COUNTED_IMAGES noise images."""
    pruned = prune(schedule(model, rho, method=method), model)
    if method != Method.A_STAR:
        return pruned.macs.total
    images = torch.from_numpy(noise(pruned.vit.spec, "float32", COUNTED_IMAGES)).to(
        pruned.vit.device
    )
    with torch.inference_mode():
        return mean_macs(pruned.vit.spec, pruned.patches_left(images).numpy()).total


def _cells(row: dict[str, object]) -> Iterator[list[str]]:
    where = [str(row["model"]), str(row["mode"]), str(row["batch"])]
    if row["error"]:
        yield _reasoned([*where, "failed"], str(row["error"]))
        return
    times = row["times"]
    speed_ups, mac_ratios = row["speed_ups"], row["mac_ratios"]
    estimated = row["estimated"]
    assert isinstance(times, dict)
    assert isinstance(speed_ups, dict) and isinstance(mac_ratios, dict)
    assert isinstance(estimated, dict)
    for name, time in sorted(times.items(), key=lambda item: item[0] != "dense"):
        estimate = estimated.get(name)
        rate = (
            f"{time['images_per_s']:.1f}",
            f"{time['median_ms']:.3f}",
            "" if estimate is None else f"{estimate:.3f}",
        )
        if name not in speed_ups:
            yield [*where, name, *rate, *[""] * (len(COLUMNS) - 7)]
            continue
        speed_up, mac_ratio = speed_ups[name], mac_ratios[name]
        low, high = speed_up["quartiles"]
        published = PUBLISHED.get(where[0]) if name == "STAR 0.7" else None
        yield [
            *where,
            name,
            *rate,
            f"{speed_up['median']:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{mac_ratio:.3f}",
            f"{speed_up['median'] / mac_ratio:.3f}",
            f"{published:g}" if published else "",
        ]


if __name__ == "__main__":
    sys.exit(main())
