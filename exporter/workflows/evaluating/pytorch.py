"""PyTorch models to evaluate, beside those of files."""

from torch import nn

from exporter.calibration.record import Calibration
from exporter.data.batches import View
from exporter.evaluation.parity.reference import reference_runner
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.evaluating.models import EvalModel

__all__ = ["torch_model", "torch_models"]


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
    dense = torch_model(steps.dense(vit), "dense", threads=threads)
    if schedule is None:
        return (dense,)
    return dense, torch_model(steps.prune(vit, schedule, calibration), "pruned", threads=threads)


def torch_model(model: PrunedViT | PrunableViT | nn.Module, name: str = "", *, threads: int = 0) -> EvalModel:
    """Return a model in PyTorch, by default named after its method: "dense" for one that is not pruned.

    Args:
        model: A pruned model, or an unpruned one: an adapter, or a module of a supported family, which is copied.
        name: What the result calls it.
        threads: CPU threads within an operator; 0 keeps PyTorch's setting.

    Raises:
        ModelError: There is no adapter for a module.
    """
    if not isinstance(model, PrunedViT):
        return torch_model(steps.dense(steps.load_model(model)), name, threads=threads)
    spec = model.vit.spec
    view = View(spec.preprocessing, InputKind.FLOAT32)
    name, runner = name or str(model.method), reference_runner(model, threads=threads or None)
    given = spec.num_classes, spec.embedding, spec.class_names
    return EvalModel(name, spec.name, "pytorch", runner, view, *given)
