"""Measure the throughput of the dense and the pruned model at several batch sizes, and the time per operator.

Takes an export folder or two ONNX files. Both models run in turns in one process, on real images. The pruned model
is reported as faster only if both quartiles of the per-round speed-ups are above 1.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.cli.gpu_table import against_dense, break_even_words, print_gpu_time
from exporter.errors import RecipeError
from exporter.settings import add_flags, from_flags

if TYPE_CHECKING:
    from exporter.artefact import LoweredFile
    from exporter.evaluation.benchmark import Throughput
    from exporter.evaluation.benchmark.batch_sweep import AtBatch
    from exporter.records import Pair
    from exporter.workflows.folders.bench import Bench

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = (
    "star-export bench build/digits",
    "star-export bench --dense dense.onnx --pruned pruned.onnx --batches 1,8",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from exporter.evaluation.benchmark.batch_sweep import BenchSettings
    from exporter.runtimes.choice import RunSettings

    parser.add_argument("folder", type=Path, nargs="?", help="The export folder that `compile` wrote.")
    parser.add_argument("--dense", type=Path, metavar="FILE", help="The dense model, instead of a folder.")
    parser.add_argument("--pruned", type=Path, metavar="FILE", help="The pruned model.")
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="FILE",
        help="File with the images. Default: reference.npz beside the pruned model.",
    )
    add_flags(parser, BenchSettings)
    add_flags(parser, RunSettings, ("runtime", "plugin"))


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; the exit code is 0 whichever model is faster."""
    from exporter.cli.output import print_json
    from exporter.cli.stages import RichStages
    from exporter.evaluation.benchmark.batch_sweep import BenchSettings
    from exporter.runtimes.choice import RunSettings
    from exporter.workflows.folders.bench import bench

    settings = from_flags(BenchSettings, arguments)
    runtime = from_flags(RunSettings, arguments)
    models, reference = _models(arguments)
    result = bench(models, reference, settings, RichStages(quiet=arguments.quiet), runtime=runtime)
    if arguments.json:
        print_json(result)
    else:
        _print(result)
    return 0


def _models(arguments: argparse.Namespace) -> "tuple[Pair[LoweredFile], Mapping[str, Any]]":
    """Return the two models and the arrays of their reference."""
    from exporter.artefact import read_pair
    from exporter.records import Pair
    from exporter.workflows.folders.export_folder import read_folder
    from exporter.workflows.folders.reference import REFERENCE, read_reference

    given = (arguments.dense, arguments.pruned)
    if arguments.folder is not None and given == (None, None):
        found = read_folder(arguments.folder)
        own = arguments.reference is None
        return found.models, found.read_reference() if own else read_reference(arguments.reference)
    if arguments.folder is None and None not in given:
        beside = arguments.pruned.parent / REFERENCE
        models = read_pair(Pair(arguments.dense, arguments.pruned))
        return models, read_reference(arguments.reference or beside)
    got = "a folder and files" if arguments.folder else "neither, or only one file"
    raise RecipeError("bench", got, "an export folder, or --dense FILE --pruned FILE")


def _print(result: "Bench") -> None:
    from exporter.cli.output import print_lines, print_table

    rho = "" if result.rho is None else f", rho {result.rho:.4g}"
    dense, pruned = result.macs.dense / 1e9, result.macs.pruned / 1e9
    title = f"{result.model}, {result.method}{rho}: {dense:.2f} → {pruned:.2f} GMACs"
    columns = ("batch", "model", "img/s", "median ms", "p99 ms", "speed-up", "quartiles", "E", "")
    print_table(title, columns, [row for each in result.batches for row in _rows(each)])
    if result.batches[0].breakdown_ms:
        heads = ("ms per run, dense → pruned", *(f"batch {each.batch}" for each in result.batches))
        print_table("Time by operator class, profiled separately", heads, _breakdown_rows(result))
    if result.gpu:
        print_gpu_time(result)
    print_lines(_lines(result))


def _rows(at: "AtBatch") -> Iterator[tuple[str, ...]]:
    yield (str(at.batch), "dense", *_speed(at.throughput.dense), "", "", "", "")
    yield ("", "pruned", *_speed(at.throughput.pruned), *against_dense(at.comparison))
    if at.selection is not None:
        yield ("", "plain slices", *_speed(at.selection.sliced), *against_dense(at.selection.ceiling))


def _speed(time: "Throughput") -> tuple[str, str, str]:
    return f"{time.images_per_s:.1f}", f"{time.median_ms:.2f}", f"{time.p99_ms:.2f}"


def _breakdown_rows(result: "Bench") -> Iterator[tuple[str, ...]]:
    parts = [each.breakdown_ms for each in result.batches if each.breakdown_ms]
    for name in parts[0].dense:
        yield (name, *(f"{each.dense[name]:.2f} → {each.pruned[name]:.2f}" for each in parts))


def _lines(result: "Bench") -> Iterator[str]:
    for at in result.batches:
        if at.selection is not None:
            cost = at.selection.cost
            low, high = cost.quartiles
            took = f"{cost.median:.3f} × the time of plain slices (quartiles {low:.3f} to {high:.3f})"
            yield f"selection cost at batch {at.batch}: {took}"
    yield break_even_words(result.batches)
    hardware, settings = result.hardware, result.settings
    threads = f"{settings.threads} threads" if settings.threads else "one thread per physical core"
    cpus = f"CPUs {','.join(map(str, hardware.cpus))}" if hardware.cpus else f"{hardware.usable_cpus} CPUs"
    yield (
        f"{settings.rounds} rounds after {settings.warmup}, {threads}, {cpus} of {hardware.cpu_model}; "
        f"{result.runtime}, {', '.join(f'{name} {version}' for name, version in hardware.versions.items())}"
    )
