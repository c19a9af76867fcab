"""Measure what choosing patches costs, in standard operators and with our library of operators. Markdown on stdout.

    star-export ops build
    python benchmarks/choosing.py --model deit_tiny_patch16_224 --batch 1 --rounds 300 --threads 1 --cpu-time

STAR and a-STAR (packed and shrinking, at STAR's mean MACs) in both forms, and STAR with plain slices in place
of its selection, run in turns in one process. The bundled models have their weights, and rates from DeiT-S's ACS
stretched to the depth; the DeiTs have those of benchmarks/adaptive.py, whose attention is uneven.
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
import onnx
from adaptive import Pruning, peaked, varied
from deits import DEIT_S_ACS, MODELS

from exporter import bundled
from exporter.evaluation.benchmark import Throughput, ratio_of, throughput
from exporter.lowering.pipeline import lower_each
from exporter.lowering.variants import sliced_variant
from exporter.models.networks import ModelRequest
from exporter.models.registry import load
from exporter.records import Schedule
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.schedule.plan import ScheduleSettings, star_schedule
from exporter.schedule.solve import rho_for
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_OPS
from exporter.tensor_names import IMAGES
from exporter.vocabulary import Method
from exporter.workflows.recipes.planning import IMAGE_BISECTIONS

BUNDLED = tuple(bundled.MODELS)
COLUMNS = (
    "model",
    "batch",
    "form",
    "nodes",
    "ms",
    "time / slices",
    "quartiles",
    "time / STAR's",
    "quartiles",
)
SLICES, STAR = "plain slices", "STAR"
FORMS = {"": ONNXRUNTIME, ", operators": ONNXRUNTIME_OPS}


def main() -> None:
    """Lower, measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=MODELS[0], choices=(*MODELS, *BUNDLED), help="Model to measure.")
    parser.add_argument("--rho", type=float, default=0.7, help="The lowest retention rate of STAR.")
    parser.add_argument("--batch", type=int, default=1, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=300, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="Time of the thread, not of the clock, on a machine that other work shares; with --threads 1.",
    )
    options = parser.parse_args()
    pruning = _pruning(options.model, options.batch)
    models = dict(_models(pruning, options.rho))
    runners = {
        name: OnnxRuntimeRunner(model.SerializeToString(), name=name, threads=options.threads)
        for name, model in models.items()
    }
    clock = time.thread_time if options.cpu_time else time.perf_counter
    feed = {IMAGES: pruning.images}
    times = throughput(runners, feed, batch=options.batch, rounds=options.rounds, warmup=10, clock=clock)
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, model in models.items():
        cells = [options.model, str(options.batch), name, str(len(model.graph.node))]
        print(f"| {' | '.join((*cells, *_speed(name, times)))} |")


def _pruning(name: str, batch: int) -> Pruning:
    vit = peaked(name) if name in MODELS else load(ModelRequest(name))
    return Pruning(vit, varied(vit, batch))


def _models(pruning: Pruning, rho: float) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield the models by what the table calls them."""
    star = _schedule(pruning, rho, Method.STAR)
    adaptive = rho_for(
        lambda each: _schedule(pruning, each, Method.A_STAR),
        pruning.useful,
        pruning.useful(star),
        IMAGE_BISECTIONS,
    )
    ways = {
        STAR: pruning.pruned(star),
        **{f"a-STAR, {layout}": pruning.pruned(adaptive, layout) for layout in ("packed", "shrinking")},
    }
    for way, pruned in ways.items():
        for form, model in zip(FORMS, lower_each(pruned, FORMS.values()), strict=True):
            if way == STAR:
                yield f"{SLICES}{form}", sliced_variant(model)
            yield f"{way}{form}", model


def _schedule(pruning: Pruning, rho: float, method: Method) -> Schedule:
    spec = pruning.vit.spec
    places = np.linspace(0, 1, spec.depth)
    acs = np.interp(places, np.linspace(0, 1, len(DEIT_S_ACS)), DEIT_S_ACS).tolist()
    return star_schedule(spec, acs, rho, ScheduleSettings(method=method))


def _speed(name: str, times: dict[str, Throughput]) -> Iterator[str]:
    """Yield the cells of a model's time, over that of plain slices and of STAR in standard operators."""
    yield f"{times[name].median_ms:.2f}"
    for base in (SLICES, STAR):
        against = ratio_of(times[name], times[base])
        yield f"{against.median:.3f}"
        yield "{:.3f} to {:.3f}".format(*against.quartiles)


if __name__ == "__main__":
    main()
