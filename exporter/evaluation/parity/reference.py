"""Run the PyTorch reference through the `Runner` interface, with the tensor names of the lowered model."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from exporter.data.pixels import normalise
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.base import TensorInfo
from exporter.runtimes.torch_runner import TorchRunner
from exporter.tensor_names import (
    IMAGES,
    count_name,
    gap_name,
    into_name,
    keep_name,
    score_name,
    token_count_name,
    token_positions_name,
)
from exporter.vocabulary import OutputKind

__all__ = ["patches_left_of", "reference_runner"]

Array = np.ndarray[Any, Any]


def reference_runner(
    pruned: PrunedViT, input_kind: str = "float32", *, threads: int | None = None
) -> TorchRunner:
    """Return a runner for the outputs and, per pruning layer, `keep_NN`, `score_NN` and for a-STAR `count_NN`.

    If tokens merge, it also returns `into_NN` and `gap_NN`.

    Args:
        pruned: The pruned (or, with rates of 1, the dense) ViT.
        input_kind: "float32" takes preprocessed images, "uint8" the pixels before normalisation.
        threads: CPU threads within an operator; None keeps PyTorch's setting.
    """
    shape = ("batch", *pruned.vit.spec.preprocessing.input_size)
    return TorchRunner(
        _ByName(pruned.eval(), input_kind).eval(),
        inputs=[TensorInfo(IMAGES, shape, input_kind)],
        outputs=list(_outputs(pruned)),
        name="PyTorch",
        device=str(pruned.vit.device),
        threads=threads,
    )


def patches_left_of(pruned: PrunedViT, images: Array, input_kind: str, batch: int) -> Array:
    """Return the number of patches that each image has left after each layer, [images, depth].

    Args:
        pruned: The pruned ViT.
        images: [images, 3, H, W], as the lowered model takes them.
        input_kind: "float32" or "uint8".
        batch: Images per run.
    """
    parts = torch.from_numpy(images).split(batch)
    with torch.inference_mode():
        left = [
            pruned.patches_left(_prepared(pruned, part.to(pruned.vit.device), input_kind)) for part in parts
        ]
    return torch.cat(left).numpy()


class _ByName(nn.Module):
    """Map tensors by name to tensors by name."""

    def __init__(self, pruned: PrunedViT, input_kind: str) -> None:
        super().__init__()
        self.pruned, self.input_kind = pruned, input_kind

    def forward(self, feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        trace = self.pruned.trace(_prepared(self.pruned, feed[IMAGES], self.input_kind))
        keeps = {keep_name(layer): each.index for layer, each in trace.decisions.items()}
        counts = {
            count_name(layer): each.count for layer, each in trace.decisions.items() if each.count is not None
        }
        intos = {
            into_name(layer): each.into for layer, each in trace.decisions.items() if each.into is not None
        }
        gaps = {gap_name(layer): gap for layer, gap in trace.gap.items()}
        scores = {score_name(layer): score.contiguous() for layer, score in trace.score.items()}
        return {**trace.outputs, **keeps, **counts, **scores, **intos, **gaps}


def _prepared(pruned: PrunedViT, images: Tensor, input_kind: str) -> Tensor:
    if input_kind != "uint8":
        return images
    return torch.from_numpy(normalise(images.cpu().numpy(), pruned.vit.spec.preprocessing)).to(images.device)


def _outputs(pruned: PrunedViT) -> Iterator[TensorInfo]:
    schedule = pruned.schedule
    before = (schedule.num_patches, *schedule.keep[:-1])
    for output in pruned.vit.spec.outputs:
        if output.kind != OutputKind.TOKENS:
            rows = (schedule.num_patches,) if output.kind == OutputKind.GRID else ()
            yield TensorInfo(output.name, ("batch", *rows, output.channels), "float32")
            continue
        patches = schedule.left_after(output.layer)
        left = "" if patches is None else patches
        yield TensorInfo(output.name, ("batch", left, output.channels), "float32")
        yield TensorInfo(token_positions_name(output.name), ("batch", left), "int64")
        if schedule.adaptive and patches is None:
            yield TensorInfo(token_count_name(output.name), ("batch",), "int64")
    for layer in schedule.pruning_layers:
        # Sizes that depend on the images have no name: they equal no other size.
        varies = schedule.method.counts_vary
        kept, scored = ("", "") if varies else (schedule.keep[layer - 1], before[layer - 1])
        yield TensorInfo(keep_name(layer), ("batch", kept), "int64")
        yield TensorInfo(score_name(layer), ("batch", scored), "float32")
        if schedule.adaptive:
            yield TensorInfo(count_name(layer), ("batch",), "int64")
        if pruned.reduction.merges:
            yield TensorInfo(into_name(layer), ("batch", scored), "int64")
            yield TensorInfo(gap_name(layer), ("batch", scored), "float32")
