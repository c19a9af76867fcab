"""DeiT on ONNX Runtime's CUDA provider, timed host to host. Files are lowered once; the provider is checked."""

from collections.abc import Mapping
from pathlib import Path

from deits import deit, dense, prune, schedule
from dense_forms import torch_export

from exporter.lowering.pipeline import lower, save_onnx
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import PROVIDERS
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.runtimes.provider_check import require_provider
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_FP16
from exporter.tensor_names import IMAGES
from exporter.vocabulary import Method
from exporter.workflows.measuring import noise

__all__ = ["MODES", "STOCK", "onnxruntime_runners"]

MODES = ("fp32", "tf32", "fp16")
STOCK = "timm, as exported"
CUDA = PROVIDERS["onnxruntime-cuda"]


def onnxruntime_runners(
    model: str, methods: Mapping[str, tuple[Method, float]], mode: str, folder: Path
) -> dict[str, Runner]:
    """Create runners of the dense model, of timm's, and of a pruned one for each of `methods`: (method, rho).

    timm's own model is as PyTorch exports it, without our passes; in fp32 alone.

    Raises:
        UserError: The CUDA provider is missing, or another provider runs a part of a model.
    """
    paths = {"dense": _lowered(dense(model), mode, folder / f"{model}.dense.{mode}.onnx")}
    for name, (method, rho) in methods.items():
        pruned = prune(schedule(model, rho, method=method), model)
        paths[name] = _lowered(pruned, mode, folder / f"{model}.{method}{rho:g}.{mode}.onnx")
    if mode != "fp16":
        paths[STOCK] = folder / f"{model}.timm.onnx"
        if not paths[STOCK].is_file():
            torch_export(model, paths[STOCK], opset=20)
    feed = {IMAGES: noise(deit(model).spec, "float32", 1)}
    for path in paths.values():
        require_provider(path, CUDA, feed)
    return {
        name: OnnxRuntimeRunner(path, providers=CUDA, tf32=mode == "tf32") for name, path in paths.items()
    }


def _lowered(network: PrunedViT, mode: str, path: Path) -> Path:
    if not path.is_file():
        save_onnx(lower(network, ONNXRUNTIME_FP16 if mode == "fp16" else ONNXRUNTIME), path)
    return path
