"""The compiler on one page: a ViT and an amount → schedule → pruned → lowered → verified.

`compile_vit` is the whole way. Whoever takes a part of it, or several ways of one ViT, takes these steps too.
"""

from dataclasses import dataclass

import onnx

from exporter.core.base.records import Schedule
from exporter.core.base.targets import Target
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import InputKind, Layout
from exporter.core.lower.pipeline import lower, lower_each
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.checks import check_inter
from exporter.core.schedule.plan import Cost, Scores, keep_everything, schedule_of
from exporter.core.schedule.policy import Policy
from exporter.core.verify.record import ParityReport
from exporter.core.verify.reference import check, check_recorded
from exporter.core.vit.protocol import PrunableViT

__all__ = [
    "check",
    "check_recorded",
    "compile_vit",
    "lower",
    "lower_each",
    "plan",
    "prune",
]


@dataclass(frozen=True, eq=False)
class Compiled:
    """What a ViT and an amount became: each is made from the one before, and `parity` compares the last two."""

    schedule: Schedule
    pruned: PrunedViT
    model: onnx.ModelProto
    parity: ParityReport


def compile_vit(
    vit: PrunableViT,
    policy: Policy | None,
    target: Target,
    images: Array,
    scores: Scores | None = None,
    *,
    input_kind: InputKind = InputKind.FLOAT32,
) -> Compiled:
    """Compile a trained ViT for a target.

    Args:
        vit: The trained ViT.
        policy: How to prune, and how much; None: not at all.
        target: The runtime and the precision.
        images: [n, 3, H, W], as the lowered model takes them, for ranges of activations and for the comparison.
        scores: What a calibration measured, where the policy needs it.
        input_kind: Preprocessed images, or the pixels before normalisation.

    Raises:
        UserError: The amount is out of reach, or the target does not support the model or the method.
    """
    schedule = plan(vit, policy, scores)
    pruned = prune(vit, schedule, scores, target.layout(None))
    model = lower(pruned, target, input_kind, images)
    return Compiled(schedule, pruned, model, check(pruned, model, images))


def plan(
    vit: PrunableViT,
    policy: Policy | None,
    scores: Scores | None = None,
    image_cost: Cost | None = None,
) -> Schedule:
    """Return how many patches each layer keeps: all of them without a policy. See `schedule_of`."""
    if policy is None:
        return keep_everything(vit.spec)
    return schedule_of(policy, vit.spec, scores, image_cost=image_cost)


def prune(
    vit: PrunableViT,
    schedule: Schedule,
    scores: Scores | None = None,
    layout: Layout | str = Layout.SHRINKING,
) -> PrunedViT:
    """Return the PyTorch reference of the pruned model; `layout` is the layout of a-STAR's tokens in a batch.

    Raises:
        ScheduleError: The schedule is of another model, or was made with other inter-layer scores.
    """
    if scores is None:
        return PrunedViT(vit, schedule, layout=layout)
    check_inter(schedule, scores.inter_sha256)
    return PrunedViT(vit, schedule, scores.inter, layout)
