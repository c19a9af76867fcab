"""The PyTorch reference as a `Runner` with the tensor names of the lowered model, which is compared with it."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import onnx
import torch
from torch import Tensor

from exporter.core.base.artefact import artefact_of
from exporter.core.base.large_onnx import openable
from exporter.core.base.records import Schedule, normalise
from exporter.core.base.tensor_names import (
    FORCED,
    IMAGES,
    TRACING,
    Array,
    count_name,
    gap_name,
    into_name,
    keep_name,
    score_name,
)
from exporter.core.base.torch_state import in_eval_mode
from exporter.core.base.vocabulary import InputKind, Method
from exporter.core.lower.instrumented import forced_model, tracing_model
from exporter.core.lower.largest_values import largest_halves
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.macs import mean_macs
from exporter.core.verify.checks import with_range
from exporter.core.verify.comparison import (
    Models,
    compare_lowered,
    in_batches,
)
from exporter.core.verify.playback_runner import PlaybackRunner, recorded
from exporter.core.verify.record import ParityReport
from exporter.core.verify.runner import Runner, TensorInfo
from exporter.core.verify.runners import runner_here
from exporter.core.verify.torch_runner import TorchRunner
from exporter.core.vit.protocol import PrunableViT


def reference_runner(
    pruned: PrunedViT, input_kind: str = "float32", *, threads: int | None = None
) -> TorchRunner:
    """Return a runner for the outputs and, per pruning layer, `keep_NN`, `score_NN` and for a-STAR `count_NN`.

    If tokens merge, it also returns `into_NN` and `gap_NN`. The ViT is pruned or, with rates of 1, dense.
    "float32" takes preprocessed images, "uint8" the pixels before normalisation. None keeps PyTorch's number of
    threads.
    """
    shape = ("batch", *pruned.vit.spec.preprocessing.input_size)
    return TorchRunner(
        partial(_by_name, pruned, input_kind),
        inputs=[TensorInfo(IMAGES, shape, input_kind)],
        outputs=list(recorded(pruned.vit.spec, pruned.schedule)),
        name="PyTorch",
        device=str(pruned.vit.device),
        threads=threads,
    )


def answers_of(
    pruned: PrunedViT, images: Array, input_kind: InputKind
) -> dict[str, Array]:
    """Return what PyTorch answers and decides for images, which run in one batch, by the runner's names."""
    with reference_runner(pruned, input_kind) as reference:
        return reference.run({IMAGES: images})


def patches_left_of(
    pruned: PrunedViT, images: Array, input_kind: str, batch: int
) -> Array:
    """Return the number of patches that each image has left after each layer, [images, depth].

    The images, [images, 3, H, W] as the lowered model takes them, run `batch` at a time.
    """
    parts = torch.from_numpy(images).split(batch)
    with torch.inference_mode():
        left = [
            pruned.patches_left(
                _prepared(pruned, part.to(pruned.vit.device), input_kind)
            )
            for part in parts
        ]
    return torch.cat(left).numpy()


def _by_name(
    pruned: PrunedViT, input_kind: str, feed: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    with in_eval_mode(pruned):
        trace = pruned.trace(_prepared(pruned, feed[IMAGES], input_kind))
    tensors = dict(trace.outputs)
    for layer, decision in trace.decisions.items():
        tensors[keep_name(layer)] = decision.index
        if decision.count is not None:
            tensors[count_name(layer)] = decision.count
        if decision.into is not None:
            tensors[into_name(layer)] = decision.into
    tensors |= {gap_name(layer): gap for layer, gap in trace.gap.items()}
    tensors |= {
        score_name(layer): score.contiguous() for layer, score in trace.score.items()
    }
    return tensors


def _prepared(pruned: PrunedViT, images: Tensor, input_kind: str) -> Tensor:
    if input_kind != "uint8":
        return images
    return torch.from_numpy(
        normalise(images.cpu().numpy(), pruned.vit.spec.preprocessing)
    ).to(images.device)


def check(
    pruned: PrunedViT, model: onnx.ModelProto, images: Array, *, threads: int = 0
) -> ParityReport:
    """Compare a lowered model with its reference, on its target's runtime on the CPU.

    Half of the images run one by one, the others eight at a time; on OpenVINO the first with a fixed batch, the
    others with a dynamic one. The target in the model's metadata determines the runtime and the tolerance. The
    images are [n, 3, H, W], as the model takes them; 0 threads are one per physical core.
    """
    artefact = artefact_of(model)
    target = artefact.target
    name = f"{target.name}: {model.graph.name} ({pruned.method})"
    reference = reference_runner(pruned, artefact.input_kind)
    with openable(model) as content:
        shipped = runner_here(content, target, threads, name=name)
        return _compared(reference, shipped, model, images, threads)


def check_recorded(
    answers: Mapping[str, Array],
    shipped: Runner,
    model: onnx.ModelProto,
    *,
    threads: int = 0,
) -> ParityReport:
    """Compare a lowered model, which `shipped` runs, with what PyTorch answered for `images`; see `check`.

    The answers are those of `reference.npz`.
    """
    artefact = artefact_of(model)
    outputs, dense = artefact.spec.outputs, not artefact.prunes
    reference = PlaybackRunner(answers, outputs, dense=dense)
    return _compared(reference, shipped, model, answers[IMAGES], threads)


def _compared(
    reference: Runner,
    shipped: Runner,
    model: onnx.ModelProto,
    images: Array,
    threads: int,
) -> ParityReport:
    artefact = artefact_of(model)
    tracing, forced = None, None
    with ExitStack() as files:

        def variant(proto: onnx.ModelProto, role: str) -> Runner:
            content = files.enter_context(openable(proto))
            name = f"{shipped.name}, {role}"
            return runner_here(content, artefact.target, threads, name=name)

        if artefact.prunes:
            tracing = variant(tracing_model(model), TRACING)
            forced = variant(forced_model(model), FORCED)
        spec = artefact.spec
        models = Models(
            reference, shipped, tracing, forced, spec.outputs, spec.class_names
        )
        report = compare_lowered(models, artefact, in_batches(images))
    return with_range(report, largest_halves(model, images))


def mean_useful_macs(model: PrunedViT, images: Array, input_kind: InputKind) -> float:
    """Return the MACs of one image: from the schedule, or under a-STAR the mean over these images."""
    if model.method != Method.A_STAR:
        return float(model.macs.total)
    left = patches_left_of(model, images, input_kind, len(images))
    return float(mean_macs(model.vit.spec, left, model.schedule).total)


def image_cost(
    vit: PrunableViT, images: Array, inter: Array | None, batch: int
) -> Callable[[Schedule], float]:
    """Return a function: mean useful MACs of images, [n, 3, H, W] float32, under an a-STAR schedule.

    `inter` are the inter-layer scores, [layers, patches].
    """

    def cost(schedule: Schedule) -> float:
        pruned = PrunedViT(vit, schedule, inter)
        left = patches_left_of(pruned, images, InputKind.FLOAT32, batch)
        return float(mean_macs(vit.spec, left, schedule).total)

    return cost
