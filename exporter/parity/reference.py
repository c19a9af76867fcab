"""The PyTorch reference behind the `Runner` interface, under the tensor names of the lowered model."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from exporter.calibration.pixels import normalise
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runners.base import TensorInfo
from exporter.runners.torch_runner import TorchRunner
from exporter.tensor_names import IMAGES, LOGITS, count_name, keep_name, score_name

__all__ = ["patches_left_of", "reference_runner"]

Array = np.ndarray[Any, Any]


def reference_runner(pruned: PrunedViT, input_dtype: str = "float32") -> TorchRunner:
    """A runner that returns `logits` and, for each pruning layer, `keep_NN`, `score_NN` and a-STAR's `count_NN`.

    Args:
        pruned: The pruned (or, with rates of 1, the dense) ViT.
        input_dtype: "float32" takes preprocessed images, "uint8" the pixels before normalisation.
    """
    shape = ("batch", *pruned.vit.spec.preprocessing.input_size)
    return TorchRunner(
        _ByName(pruned.eval(), input_dtype).eval(),
        inputs=[TensorInfo(IMAGES, shape, input_dtype)],
        outputs=list(_outputs(pruned)),
        name="PyTorch",
        device=str(pruned.vit.device),
    )


def patches_left_of(pruned: PrunedViT, images: Array, input_dtype: str, batch: int) -> Array:
    """Patches that each image has left after each layer, [images, depth].

    Args:
        pruned: The pruned ViT.
        images: [images, 3, H, W], as the lowered model takes them.
        input_dtype: "float32" or "uint8".
        batch: Images in a run.
    """
    parts = torch.from_numpy(images).split(batch)
    with torch.inference_mode():
        left = [
            pruned.patches_left(_prepared(pruned, part.to(pruned.vit.device), input_dtype)) for part in parts
        ]
    return torch.cat(left).numpy()


class _ByName(nn.Module):
    """From tensors by name to tensors by name."""

    def __init__(self, pruned: PrunedViT, input_dtype: str) -> None:
        super().__init__()
        self.pruned, self.input_dtype = pruned, input_dtype

    def forward(self, feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        trace = self.pruned.trace(_prepared(self.pruned, feed[IMAGES], self.input_dtype))
        keeps = {keep_name(layer + 1): kept.index for layer, kept in trace.kept.items()}
        counts = {
            count_name(layer + 1): kept.count for layer, kept in trace.kept.items() if kept.count is not None
        }
        scores = {score_name(layer + 1): score.contiguous() for layer, score in trace.score.items()}
        return {LOGITS: trace.logits, **keeps, **counts, **scores}


def _prepared(pruned: PrunedViT, images: Tensor, input_dtype: str) -> Tensor:
    return normalise(images, pruned.vit.spec.preprocessing) if input_dtype == "uint8" else images


def _outputs(pruned: PrunedViT) -> Iterator[TensorInfo]:
    schedule = pruned.schedule
    before = (schedule.num_patches, *schedule.keep[:-1])
    yield TensorInfo(LOGITS, ("batch", pruned.vit.spec.num_classes), "float32")
    for layer in schedule.pruning_layers:
        # Sizes that follow the images have no name: they are equal to nothing else.
        kept, scored = ("", "") if schedule.adaptive else (schedule.keep[layer], before[layer])
        yield TensorInfo(keep_name(layer + 1), ("batch", kept), "int64")
        yield TensorInfo(score_name(layer + 1), ("batch", scored), "float32")
        if schedule.adaptive:
            yield TensorInfo(count_name(layer + 1), ("batch",), "int64")
