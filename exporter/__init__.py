"""A deployment compiler for pruned Vision Transformers."""

import importlib
import warnings
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

from exporter.torch_state import in_usual_torch

if TYPE_CHECKING:
    from exporter.artefact import to_grid as to_grid
    from exporter.calibration.record import Calibration as Calibration
    from exporter.calibration.settings import CalibrationSettings as CalibrationSettings
    from exporter.errors import UserError as UserError
    from exporter.evaluation.batch_sweep import BenchSettings as BenchSettings
    from exporter.models.request import ModelRequest as ModelRequest
    from exporter.records import Schedule as Schedule
    from exporter.runtimes.choice import RunSettings as RunSettings
    from exporter.schedule.prune import Prune as Prune
    from exporter.targets import TARGETS as TARGETS
    from exporter.training.settings import FinetuneSettings as FinetuneSettings
    from exporter.training.settings import preset_values as preset_values
    from exporter.vocabulary import InputKind as InputKind
    from exporter.vocabulary import Layout as Layout
    from exporter.vocabulary import Method as Method
    from exporter.vocabulary import Precision as Precision
    from exporter.workflows.compile import compare_methods, compile_model
    from exporter.workflows.evaluate import evaluate_models
    from exporter.workflows.finetune import finetune_model
    from exporter.workflows.inspect import inspect_artefact
    from exporter.workflows.predicting import models_at as models_at
    from exporter.workflows.predicting import torch_models as torch_models
    from exporter.workflows.progress import CallbackStages as CallbackStages
    from exporter.workflows.progress import Stages as Stages
    from exporter.workflows.recipe import EvalSettings as EvalSettings
    from exporter.workflows.recipe import Images as Images
    from exporter.workflows.recipe import Lowering as Lowering
    from exporter.workflows.recipe import Measuring as Measuring
    from exporter.workflows.recipe import Recipe as Recipe
    from exporter.workflows.steps import bench as bench
    from exporter.workflows.steps import calibrate as calibrate
    from exporter.workflows.steps import check as check
    from exporter.workflows.steps import dense as dense
    from exporter.workflows.steps import export as export
    from exporter.workflows.steps import load_model as load_model
    from exporter.workflows.steps import plan as plan
    from exporter.workflows.steps import prune as prune
    from exporter.workflows.steps import save as save
    from exporter.workflows.tuning.choice import TuneSettings as TuneSettings
    from exporter.workflows.tuning.tune import tune as tune

    compare, compile, evaluate = compare_methods, compile_model, evaluate_models  # noqa: A001
    finetune, inspect = finetune_model, inspect_artefact

__version__ = "0.2.0"

# The module of each public name. They are imported on first use, so `import exporter` needs no library.
_PLACES = {
    "artefact": ("to_grid",),
    "calibration.record": ("Calibration",),
    "calibration.settings": ("CalibrationSettings",),
    "errors": ("UserError",),
    "evaluation.batch_sweep": ("BenchSettings",),
    "models.request": ("ModelRequest",),
    "records": ("Schedule",),
    "runtimes.choice": ("RunSettings",),
    "schedule.prune": ("Prune",),
    "targets": ("TARGETS",),
    "training.settings": ("FinetuneSettings", "preset_values"),
    "vocabulary": ("InputKind", "Layout", "Method", "Precision"),
    "workflows.predicting": ("models_at", "torch_models"),
    "workflows.progress": ("CallbackStages", "Stages"),
    "workflows.recipe": ("EvalSettings", "Images", "Lowering", "Measuring", "Recipe"),
    "workflows.steps": (
        "bench",
        "calibrate",
        "check",
        "dense",
        "export",
        "load_model",
        "plan",
        "prune",
        "save",
    ),
    "workflows.tuning.choice": ("TuneSettings",),
    "workflows.tuning.tune": ("tune",),
}
_PUBLIC = {
    **{name: (place, name) for place, names in _PLACES.items() for name in names},
    "compare": ("workflows.compile", "compare_methods"),
    "compile": ("workflows.compile", "compile_model"),
    "evaluate": ("workflows.evaluate", "evaluate_models"),
    "finetune": ("workflows.finetune", "finetune_model"),
    "inspect": ("workflows.inspect", "inspect_artefact"),
}

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _public(name)


@cache
def _public(name: str) -> Any:
    """Return a public record as it is, and a function so that it computes the same whatever torch is set to."""
    place, attribute = _PUBLIC[name]
    # Some libraries add filters of warnings when they are imported: the caller's stay.
    with warnings.catch_warnings():
        module = importlib.import_module(f"exporter.{place}")
    value = getattr(module, attribute)
    return in_usual_torch(value) if isinstance(value, FunctionType) else value


def __dir__() -> list[str]:
    return sorted(__all__)
