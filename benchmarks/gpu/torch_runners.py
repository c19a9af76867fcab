"""DeiT in PyTorch on a GPU, eager or compiled. Images are on the GPU; a run ends with the copy of the logits."""

import copy
from collections.abc import Callable, Mapping

import torch
from deits import dense, prune, schedule
from torch import Tensor, nn

from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.base import Runner, TensorInfo
from exporter.runtimes.torch_runner import TorchRunner
from exporter.tensor_names import IMAGES, LOGITS
from exporter.vocabulary import Method
from exporter.workflows.measuring import noise

__all__ = ["MODES", "torch_runners"]

DEVICE = "cuda"
# Execution mode and precision.
MODES = tuple(
    f"{way}, {precision}" for precision in ("fp32", "tf32", "fp16") for way in ("eager", "compiled")
)


class Resident(nn.Module):
    """A network with its images on the device; it ignores the feed."""

    def __init__(self, network: Callable[[Tensor], Tensor], images: Tensor, precision: str) -> None:
        super().__init__()
        self.network, self.precision = network, precision
        self.images = nn.Buffer(images)

    def forward(self, feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the logits of the stored images in float32."""
        del feed
        # These settings are global, so set them for every run. PyTorch's default: fp32 products, TF32 convolutions.
        precision = "tf32" if self.precision == "tf32" else "ieee"
        torch.backends.cuda.matmul.fp32_precision = precision
        torch.backends.cudnn.conv.fp32_precision = precision  # type: ignore[attr-defined]
        # A compiled network's CUDA graph may overwrite the outputs of the run before.
        torch.compiler.cudagraph_mark_step_begin()
        return {LOGITS: self.network(self.images).float()}


def halved(network: PrunedViT) -> PrunedViT:
    """Return a copy whose network computes in fp16; scores are fp32, as in the lowered models.

    Autocast would convert the weights in every run.
    """
    half = copy.deepcopy(network)
    half.vit.model.half()
    return half


def torch_runners(
    model: str, methods: Mapping[str, tuple[Method, float]], mode: str, batch: int
) -> dict[str, Runner]:
    """Create runners of the dense network and of a pruned one for each of `methods`, (method, rho) by name."""
    torch._dynamo.reset()
    networks: dict[str, PrunedViT] = {"dense": dense(model)}
    networks |= {name: prune(schedule(model, rho, method=m), model) for name, (m, rho) in methods.items()}
    return {name: _runner(name, network, mode, batch) for name, network in networks.items()}


def _runner(name: str, network: PrunedViT, mode: str, batch: int) -> Runner:
    way, precision = mode.split(", ")
    spec = network.vit.spec
    images = torch.from_numpy(noise(spec, "float32", batch)).to(DEVICE)
    if precision == "fp16":
        network, images = halved(network), images.half()
    ready: Callable[[Tensor], Tensor] = network.to(DEVICE).eval()
    if way == "compiled":
        # With CUDA graphs: without them, small batches measure the launches of kernels.
        ready = torch.compile(ready, dynamic=False, mode="reduce-overhead")
    inputs = [TensorInfo(IMAGES, ("batch", *spec.preprocessing.input_size), "float32")]
    outputs = [TensorInfo(LOGITS, ("batch", spec.num_classes), "float32")]
    return TorchRunner(Resident(ready, images, precision).eval(), inputs, outputs, name=name)
