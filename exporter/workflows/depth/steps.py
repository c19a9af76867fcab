"""Depth pruning as steps of a job: apply a plan to a model, and choose how many units of each type to remove."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from torch import nn

from exporter.depth.checkpoint import Depth, read_depth, save_checkpoint
from exporter.depth.choose import spare
from exporter.depth.plan import CollectSettings, DepthPlan
from exporter.depth.predictor import (
    CrossValidation,
    Predictor,
    Sample,
    Split,
    accuracies_of,
    best_split,
    fit_best,
    splits,
)
from exporter.depth.surgery import apply_plan
from exporter.errors import ArtefactError, DepthError, OutputError, reason_of
from exporter.files import writable_file
from exporter.formats.canonical_json import read_json
from exporter.models.base import PrunableViT
from exporter.models.networks import ModelRequest, identity_of
from exporter.pruning.checkpoint import pruning_records, read_pruning
from exporter.schedule.macs import dense_macs
from exporter.vocabulary import UnitType
from exporter.workflows.steps import loaded

__all__ = [
    "Applied",
    "Fitted",
    "Found",
    "apply_to",
    "fitted",
    "read_samples",
    "split_for",
    "split_of",
    "weights_file",
    "written",
]


@dataclass(frozen=True)
class Applied:
    """A network without some units: its file, what it lacks, and multiply-adds and parameters before and after."""

    file: str
    depth: Depth
    gmacs_before: float
    gmacs_after: float
    parameters_before: int
    parameters_after: int


@dataclass(frozen=True)
class Fitted:
    """The predictor, and the leave-two-out error of each degree in percentage points."""

    predictor: Predictor
    rmse: dict[int, float]


@dataclass(frozen=True)
class Found:
    """The split of a budget with the highest predicted accuracy, and all of them.

    `rmse` has the cross-validation error of each degree, in percentage points.
    """

    best: Split
    splits: tuple[Split, ...]
    predictor: Predictor
    rmse: dict[int, float]


def apply_to(request: ModelRequest, plan: DepthPlan, out: Path, *, unmerged: bool = False) -> Applied:
    """Remove the units of a plan from a model, and write its weights with what it is.

    Units that the checkpoint lacks already stay gone; without a plan of its own, an unmerged one is merged. What
    prunes the checkpoint's patches is kept.

    Raises:
        UserError: The plan does not suit the model, or the file cannot be written.
    """
    before = read_depth(request.checkpoint)
    whole = _joined(before.plan if before else DepthPlan(), plan)
    if not whole.units:
        raise DepthError("depth", "no unit to remove", "--attention or --activation with layers")
    weights_file(out)
    vit = loaded(request)
    if before is not None and before.merged and unmerged:
        raise DepthError("unmerged", "a checkpoint whose layers are merged", "the unmerged one")
    result = apply_plan(vit, whole, unmerged=unmerged)
    return written(request, vit, result, Depth(whole, merged=not unmerged), out)


def weights_file(out: Path) -> Path:
    """Check the path of weights to write before the work starts.

    Raises:
        OutputError: It has another ending, or cannot be written.
    """
    if out.suffix != ".safetensors":
        raise OutputError("--out", str(out), "a name that ends in .safetensors")
    return writable_file(out)


def written(
    request: ModelRequest,
    before: PrunableViT,
    result: PrunableViT,
    depth: Depth,
    out: Path,
    *,
    keep_pruning: bool = True,
) -> Applied:
    """Write a requested model without some units; what its checkpoint prunes patches with is kept if asked for.

    Raises:
        OutputError: The file cannot be written.
    """
    trained = read_pruning(request.checkpoint) if keep_pruning and request.checkpoint is not None else None
    more = {} if trained is None else pruning_records(trained.schedule, trained.calibration)
    identity = identity_of(request, before.spec.num_classes, before.spec.class_names)
    save_checkpoint(result, identity, depth, out, **more)
    return Applied(
        str(out),
        depth,
        dense_macs(before.spec).gmacs,
        dense_macs(result.spec).gmacs,
        _parameters(before.model),
        _parameters(result.model),
    )


def _parameters(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def _joined(first: DepthPlan, second: DepthPlan) -> DepthPlan:
    """Return the plan with the units of both; the variant is the first one's where that removes attention.

    Raises:
        DepthError: The variants differ, or both name a unit.
    """
    if first.attention and second.attention and first.variant != second.variant:
        raise DepthError("variant", str(second.variant), f"{first.variant}, as the checkpoint has")
    variant = first.variant if first.attention else second.variant
    return DepthPlan((*first.attention, *second.attention), (*first.activation, *second.activation), variant)


def read_samples(path: Path) -> tuple[Sample, ...]:
    """Read samples: a JSON list of {"attention", "activation": shares removed, "accuracy": percent}.

    Raises:
        ArtefactError: The file is something else.
    """
    expected = 'a JSON list of {"attention": share, "activation": share, "accuracy": percent}'
    try:
        content = read_json(path)
        samples = tuple(msgspec.convert(content, list[Sample]))
        if any("accuracy" not in each for each in content):
            raise ValueError("a sample without its accuracy")
        return samples
    except (OSError, ValueError, RecursionError) as error:
        raise ArtefactError(str(path), reason_of(error), expected) from None


def fitted(samples: tuple[Sample, ...]) -> Fitted:
    """Fit the predictor; leave-two-out cross-validation chooses its degree.

    Raises:
        DepthError: There are too few samples, or they do not determine the coefficients.
    """
    rmse = CrossValidation(samples).rmse(accuracies_of(samples))
    return Fitted(fit_best(samples), rmse)


def split_of(vit: PrunableViT, samples: tuple[Sample, ...], settings: CollectSettings) -> Found:
    """Return the best split of a budget among the units of a ViT that may go; its weights are not read.

    Raises:
        DepthError: There are too few samples, or the budget is out of range.
    """
    most = {unit: spare(vit, unit, settings) for unit in UnitType}
    return split_for(samples, vit.spec.depth, settings.units, most)


def split_for(
    samples: tuple[Sample, ...], depth: int, units: int, most: Mapping[UnitType, int] | None = None
) -> Found:
    """Fit the predictor, and return the best split of a budget of units; `most` of each type may go.

    By default, those are all but one attention.

    Raises:
        DepthError: There are too few samples, or the budget is out of range.
    """
    fit = fitted(samples)
    every = tuple(splits(fit.predictor, depth, units))
    best = best_split(fit.predictor, depth, units, most)
    return Found(best, every, fit.predictor, fit.rmse)
