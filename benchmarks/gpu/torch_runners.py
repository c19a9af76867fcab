"""DeiT in PyTorch on a GPU, eager or compiled. Images are on the GPU; a run ends with the copy of the logits."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from case import Case, Timing
from deits import dense, prune, schedule
from torch import Tensor, nn

from exporter.core.base.errors import UserError
from exporter.core.base.tensor_names import IMAGES, LOGITS
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.verify.runner import Runner, TensorInfo
from exporter.core.verify.torch_runner import TorchRunner
from exporter.measure.benchmark import throughput

DEVICE = "cuda"
# Execution mode and precision.
MODES = tuple(
    f"{way}, {precision}"
    for precision in ("fp16", "tf32", "fp32")
    for way in ("eager", "compiled")
)
METHODS = {f"STAR {rho:g}": (Method.STAR, rho) for rho in (0.9, 0.7, 0.5)}


@contextmanager
def _products_in(precision: str) -> Iterator[None]:
    """Compute fp32 products and convolutions in a precision; both settings are those of the whole process."""
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = precision
    try:
        yield
    finally:
        for setting, earlier in zip(settings, before, strict=True):
            setting.fp32_precision = earlier


class Resident(nn.Module):
    """A network with its images on the device; it ignores the feed."""

    def __init__(
        self, network: Callable[[Tensor], Tensor], images: Tensor, precision: str
    ) -> None:
        super().__init__()
        self.network, self.precision = network, precision
        self.images = nn.Buffer(images)

    def forward(self, feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the logits of the stored images in float32."""
        del feed
        # A compiled network's CUDA graph may overwrite the outputs of the run before.
        torch.compiler.cudagraph_mark_step_begin()
        with _products_in("tf32" if self.precision == "tf32" else "ieee"):
            return {LOGITS: self.network(self.images).float()}


def halved(network: PrunedViT) -> PrunedViT:
    """Return a copy whose network computes in fp16; scores are fp32, as in the lowered models.

    Autocast would convert the weights in every run.
    """
    half = copy.deepcopy(network)
    half.vit.model.half()
    return half


def require() -> None:
    """Raise UserError where PyTorch does not see the GPU."""
    if not torch.cuda.is_available():
        raise UserError(
            "PyTorch", f"{torch.__version__}, which sees no GPU", "a build for CUDA"
        )


def prepared(case: Case) -> Timing:
    """Create the dense network and the pruned ones; the result compiles and times them."""
    torch._dynamo.reset()
    model = case.model
    networks: dict[str, PrunedViT] = {"dense": dense(model)}
    networks |= {
        name: prune(schedule(model, rho, method=m), model)
        for name, (m, rho) in METHODS.items()
    }
    runners = {name: _runner(name, network, case) for name, network in networks.items()}
    feed = {IMAGES: case.images}
    return partial(
        throughput, runners, feed, batch=case.batch, rounds=case.rounds, warmup=5
    )


def _runner(name: str, network: PrunedViT, case: Case) -> Runner:
    way, precision = case.mode.split(", ")
    spec = network.vit.spec
    images = torch.from_numpy(case.images).to(DEVICE)
    if precision == "fp16":
        network, images = halved(network), images.half()
    ready: Callable[[Tensor], Tensor] = network.to(DEVICE).eval()
    if way == "compiled":
        # With CUDA graphs: without them, small batches measure the launches of kernels.
        ready = torch.compile(ready, dynamic=False, mode="reduce-overhead")
    inputs = [TensorInfo(IMAGES, ("batch", *spec.preprocessing.input_size), "float32")]
    outputs = [TensorInfo(LOGITS, ("batch", spec.num_classes), "float32")]
    return TorchRunner(
        Resident(ready, images, precision).eval(), inputs, outputs, name=name
    )
