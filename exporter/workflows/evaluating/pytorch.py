"""PyTorch models to evaluate, beside those of files."""

from exporter.calibration.record import Calibration
from exporter.data.batches import View
from exporter.evaluation.parity.reference import reference_runner
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.evaluating.models import EvalModel

__all__ = ["torch_models"]


def torch_models(
    vit: PrunableViT,
    schedule: Schedule | None = None,
    calibration: Calibration | None = None,
    *,
    threads: int = 0,
) -> tuple[EvalModel, ...]:
    """Return a ViT as "dense", and with a schedule also its pruned model as "pruned".

    Args:
        vit: It runs on the device of its weights.
        schedule: What the pruned model keeps.
        calibration: The inter-layer scores of a schedule that needs them.
        threads: CPU threads within an operator; 0 keeps PyTorch's setting.

    Raises:
        ScheduleError: The schedule is of another model, or was made with other inter-layer scores.
    """
    dense = _model("dense", steps.dense(vit), threads)
    if schedule is None:
        return (dense,)
    return dense, _model("pruned", steps.prune(vit, schedule, calibration), threads)


def _model(name: str, pruned: PrunedViT, threads: int) -> EvalModel:
    spec = pruned.vit.spec
    view = View(spec.preprocessing, InputKind.FLOAT32)
    runner = reference_runner(pruned, threads=threads or None)
    return EvalModel(name, spec.name, "pytorch", runner, view, spec.num_classes, spec.embedding)
