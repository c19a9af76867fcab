r"""Time peers on this CPU beside each other: PyTorch and its compiler, quantizers, both runtimes, ours. Markdown.

    pip install nncf torchao optimum-onnx
    python benchmarks/peers_cpu.py --model deit_small_patch16_224 --batches 1 8 32 --threads 1 2 --rounds 12

All run in turns in one process; the processor's time is that of all threads. What is not installed, or does not run
here, is left out, as stderr says. Weights and images are noise: time depends on the structure alone.
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import torch
from deits import MODELS, deit, torch_export
from torch import Tensor, nn
from torch._inductor import config as inductor

from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_INT8,
    OPENVINO,
    OPENVINO_INT8,
    Target,
)
from exporter.core.base.vocabulary import InputKind
from exporter.core.lower.pipeline import lower_each
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything, schedule_of
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.runners import runner_here
from exporter.data.batches import noise
from exporter.engines.choice import why_not

Run: TypeAlias = Callable[[], object]

BASE = "PyTorch, eager"
STOCK = "timm's model, as exported"
STOCK_OPSET = 20
OURS = tuple(
    target
    for target in (ONNXRUNTIME, ONNXRUNTIME_INT8, OPENVINO, OPENVINO_INT8)
    if not why_not(target)
)
RANGE_IMAGES = 16
COLUMNS = (
    "model",
    "images a CPU second",
    "CPU time",
    "quartiles",
    "wall time",
    "quartiles",
)


@dataclass(frozen=True)
class Lowered:
    """A file and the runtime that it runs on."""

    path: Path
    target: Target


@dataclass(frozen=True)
class Times:
    """Seconds of each round, of the processor and by the clock."""

    cpu_s: list[float]
    wall_s: list[float]


def main() -> None:
    """Write the files, time all, print a table for each batch and number of threads."""
    options = _options()
    logging.disable(logging.WARNING)  # silences the quantizers
    inductor.freezing = True  # as an option of `torch.compile` it misses INT8
    with TemporaryDirectory() as name:
        files = dict(_files(options.model, Path(name)))
        for threads in options.threads:
            torch.set_num_threads(threads)
            for batch in options.batches:
                torch.compiler.reset()  # the compiler fixes the number of threads
                with ExitStack() as stack:
                    runs = _runs(options.model, files, batch, threads, stack)
                    times = timed(runs, options.rounds)
                print(f"\nbatch {batch}, {threads} threads, {options.rounds} rounds\n")
                _print_table(times, batch)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=12, help="Timed rounds.")
    return parser.parse_args()


def _files(model: str, folder: Path) -> Iterator[tuple[str, Lowered]]:
    """Write the files of both runtimes; yield what each is."""
    ranges = noise(deit(model).spec, InputKind.FLOAT32, RANGE_IMAGES)
    stock = folder / "stock.onnx"
    torch_export(model, stock, STOCK_OPSET)
    for target in (ONNXRUNTIME, OPENVINO):
        yield f"{STOCK}, {target.runtime.title}", Lowered(stock, target)
    quantizers = (
        ("nncf", "NNCF INT8", OPENVINO, _by_nncf),
        ("optimum.onnxruntime.quantization", "optimum INT8", ONNXRUNTIME, _by_optimum),
    )
    for library, name, target, quantize in quantizers:
        if _is_there(library):
            yield f"{name} of {STOCK}", Lowered(quantize(stock, ranges), target)
    vit = deit(model)
    planned = schedule_of(resolve(Prune(mac_reduction=0.6)), vit.spec, None)
    networks = (
        ("dense", PrunedViT(vit, keep_everything(vit.spec))),
        ("60 % saved", PrunedViT(vit, planned)),
    )
    for role, network in networks:
        models = lower_each(network, OURS, InputKind.FLOAT32, ranges)
        for target, lowered in zip(OURS, models, strict=True):
            path = folder / f"{role}.{target.name}.onnx"
            save_onnx(lowered, path)
            yield f"**ours, {role}, `{target.name}`**", Lowered(path, target)


def _by_nncf(stock: Path, ranges: np.ndarray) -> Path:
    nncf, openvino = import_module("nncf"), import_module("openvino")
    model = nncf.quantize(
        openvino.Core().read_model(stock),
        nncf.Dataset(list(ranges[:, None]), lambda image: {"images": image}),
        subset_size=len(ranges),
        model_type=nncf.ModelType.TRANSFORMER,
    )
    path = stock.with_name("nncf.xml")
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


def _by_optimum(stock: Path, _: np.ndarray) -> Path:
    library = import_module("optimum.onnxruntime.quantization")
    configuration = import_module("optimum.onnxruntime.configuration")
    settings = configuration.AutoQuantizationConfig.avx512_vnni(
        is_static=False, per_channel=True
    )
    folder = stock.with_name("optimum")
    quantizer = library.ORTQuantizer(stock)
    quantizer.quantize(save_dir=folder, quantization_config=settings)
    return folder / "stock_quantized.onnx"


def _is_there(library: str) -> bool:
    try:
        import_module(library)
    except ImportError as error:
        print(f"{library}: left out, {error}", file=sys.stderr)
        return False
    return True


def _runs(
    model: str, files: dict[str, Lowered], batch: int, threads: int, stack: ExitStack
) -> dict[str, Run]:
    """Return a run of each peer, ready to be timed."""
    images = noise(deit(model).spec, InputKind.FLOAT32, batch)
    runs = dict(_torch_runs(deit(model).model, torch.from_numpy(images)))
    for name, lowered in files.items():
        runner = stack.enter_context(runner_here(lowered.path, lowered.target, threads))
        runs[name] = partial(runner.run, {"images": images})
    return runs


def _torch_runs(network: nn.Module, images: Tensor) -> Iterator[tuple[str, Run]]:
    """Yield PyTorch's own ways."""

    def run_of(compiled: Any, dtype: torch.dtype | None = None) -> Run:
        def run() -> object:
            with (
                torch.no_grad(),
                torch.autocast("cpu", dtype, enabled=dtype is not None),
            ):
                return compiled(images)

        return run

    yield BASE, run_of(network)
    yield "PyTorch, inductor, bf16", run_of(torch.compile(network), torch.bfloat16)
    if _is_there("torchao"):
        yield "PyTorch, inductor, INT8 by PT2E", run_of(_by_pt2e(network, images))


def _by_pt2e(network: nn.Module, images: Tensor) -> Any:
    pt2e = import_module("torchao.quantization.pt2e.quantize_pt2e")
    x86 = import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    with torch.no_grad():
        prepared = pt2e.prepare_pt2e(
            torch.export.export(network, (images,)).module(), quantizer
        )
        prepared(images)
        return torch.compile(pt2e.convert_pt2e(prepared))


def timed(runs: dict[str, Run], rounds: int) -> dict[str, Times]:
    """Run all in turns, and each round from another one on; what compiles at its first run is warm."""
    names = [name for name, run in runs.items() if _is_warm(name, run)]
    times = {name: Times([], []) for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            runs[name]()
            times[name].cpu_s.append(time.process_time() - cpu_s)
            times[name].wall_s.append(time.perf_counter() - wall_s)
    return times


def _is_warm(name: str, run: Run) -> bool:
    """Run a peer once; one that cannot, e.g. on this CPU, is left out."""
    try:
        run()
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        print(f"{name}: left out, {type(error).__name__}: {reason}", file=sys.stderr)
        return False
    return True


def _print_table(times: dict[str, Times], batch: int) -> None:
    print(f"over {BASE}: \n")
    for cells in (COLUMNS, ["---"] * len(COLUMNS)):
        print(f"| {' | '.join(cells)} |")
    base = times[BASE]
    for name, measured in times.items():
        cells = [
            name,
            f"{batch / np.median(measured.cpu_s):.1f}",
            *_ratio(base.cpu_s, measured.cpu_s),
            *_ratio(base.wall_s, measured.wall_s),
        ]
        print(f"| {' | '.join(cells)} |")


def _ratio(base: Sequence[float], measured: Sequence[float]) -> tuple[str, str]:
    """Return by how much the base takes longer, round by round: the median and the quartiles."""
    ratios = np.divide(base, measured)
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{median:.2f}", f"{low:.2f} to {high:.2f}"


if __name__ == "__main__":
    main()
