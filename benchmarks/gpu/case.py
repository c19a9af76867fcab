"""One row of a table: a model in a mode at a batch size, of all methods in turns; its files, and the GPU.

Files that exist are not written again.
"""

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

# Started by its path, a script finds its own folder alone: deits.py is a folder up.
sys.path.append(str(Path(__file__).parents[1]))

from deits import deit, dense, prune, schedule, torch_export

from exporter.core.base.errors import UserError
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.targets import Target
from exporter.core.base.vocabulary import Layout, Method, Precision
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.data.batches import noise
from exporter.engines.gpu import this_machine
from exporter.measure.benchmark import Throughput

# Times all networks of a case in turns; results by name.
Timing: TypeAlias = Callable[[], dict[str, Throughput]]


@dataclass(frozen=True)
class Case:
    """What to measure. `mode` is one of the runtime's MODES; `folder` takes models and engines.

    `plugin` is the CdfRetain library, for a mode whose tokens shrink.
    """

    model: str
    mode: str
    batch: int
    rounds: int
    folder: Path
    plugin: Path | None = None

    @property
    def images(self) -> np.ndarray:
        """Noise [batch, 3, H, W]: time depends on the structure alone."""
        return noise(deit(self.model).spec, "float32", self.batch)


def on_a_gpu(run: Callable[[str], int]) -> int:
    """Call `run` with a line that describes the GPU; return the exit code, 2 where there is none."""
    try:
        gpu = this_machine("")
        return run(f"{gpu.gpu}, SM {gpu.sm}, driver {gpu.driver}, CUDA {gpu.cuda}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


STOCK = "timm, as exported"
STOCK_OPSET = 20
# The values of ranges change no time.
RANGE_IMAGES = 8
BEST: Mapping[str, Layout] = MappingProxyType({})


class Halved(nn.Module):
    """A network in fp16, with inputs and outputs in fp32: what a user gets without any tool for precision."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).half()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits in float32."""
        logits: Tensor = self.network(images.half())
        return logits.float()


def model_files(
    model: str,
    methods: Mapping[str, tuple[Method, float]],
    target: Target,
    folder: Path,
    layouts: Mapping[str, Layout] = BEST,
) -> dict[str, Path]:
    """Return files by name: "dense", STOCK, and one for each of `methods`, (method, rho) by name.

    a-STAR has the layout of its name in `layouts`, else the target's best. timm's own model is as PyTorch exports
    it, without our passes, in fp16 or fp32; there is none for a target that quantizes.
    """
    files = {
        "dense": _lowered(
            dense(model), target, folder / target.file_name(model, "dense")
        )
    }
    if not target.quantization:
        files[STOCK] = _stock(model, target.precision, folder)
    for name, (method, rho) in methods.items():
        pruned = prune(
            schedule(model, rho, method=method), model, target.layout(layouts.get(name))
        )
        kind = f"{method}{rho:g}{layouts.get(name, '')}"
        files[name] = _lowered(pruned, target, folder / target.file_name(model, kind))
    return files


def _lowered(network: PrunedViT, target: Target, path: Path) -> Path:
    if not path.is_file():
        images = None
        if target.measures:
            images = noise(network.vit.spec, "float32", RANGE_IMAGES)
        save_onnx(lower(network, target, images=images), path)
    return path


def _stock(model: str, precision: Precision, folder: Path) -> Path:
    half = precision == Precision.FP16
    path = folder / f"{model}.timm.{'fp16' if half else 'fp32'}.onnx"
    if not path.is_file():
        network = deit(model).model
        with torch.inference_mode():
            torch_export(model, path, STOCK_OPSET, Halved(network) if half else network)
    return path
