"""DeiT on ONNX Runtime's CUDA provider, with images on the GPU, kernel by kernel or as one CUDA graph."""

from functools import cache, partial
from pathlib import Path

import onnxruntime
from bound_runner import BoundRunner
from case import Case, Timing
from deits import deit
from model_files import model_files

from exporter.evaluation.benchmark import throughput
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import PROVIDERS
from exporter.runtimes.onnxruntime_runner import check_available, require_provider
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_FP16
from exporter.tensor_names import IMAGES
from exporter.vocabulary import Method
from exporter.workflows.measuring import noise

__all__ = ["METHODS", "MODES", "prepared", "require", "why_not"]

GRAPH = "CUDA graph"
MODES = tuple(f"{way}, {precision}" for precision in ("fp16", "tf32", "fp32") for way in ("kernels", GRAPH))
METHODS = {"STAR 0.7": (Method.STAR, 0.7), "a-STAR 0.7": (Method.A_STAR, 0.7)}
CUDA = PROVIDERS["onnxruntime-cuda"]


def require() -> None:
    """Raise UserError where ONNX Runtime has no CUDA provider."""
    check_available(CUDA, onnxruntime.get_available_providers())


def why_not(mode: str, plugin: Path | None) -> str:
    """Return "": every mode runs where the runtime does."""
    del mode, plugin
    return ""


def prepared(case: Case) -> Timing:
    """Create the runners of the dense model, timm's and the pruned ones; the result times them.

    Without a-STAR in a CUDA graph, which has no data-dependent sizes.

    Raises:
        UserError: Another provider runs a part of a model.
    """
    way, precision = case.mode.split(", ")
    methods = {name: each for name, each in METHODS.items() if way != GRAPH or each[0] == Method.STAR}
    target = ONNXRUNTIME_FP16 if precision == "fp16" else ONNXRUNTIME
    options = {"use_tf32": str(int(precision == "tf32")), "enable_cuda_graph": str(int(way == GRAPH))}
    made: dict[str, Runner] = {}
    for name, path in model_files(case.model, methods, target, case.folder / "models").items():
        _require_gpu(path, case.model)
        made[name] = BoundRunner(path, case.images, options=options, name=name)
    return partial(throughput, made, {IMAGES: case.images}, batch=case.batch, rounds=case.rounds, warmup=5)


@cache
def _require_gpu(path: Path, model: str) -> None:
    """Check once for each file that the GPU runs it."""
    require_provider(path, CUDA, {IMAGES: noise(deit(model).spec, "float32", 1)})
