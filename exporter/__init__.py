"""A deployment compiler for pruned Vision Transformers."""

import importlib
import warnings
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

from exporter.arguments import with_checked_arguments
from exporter.core.base.torch_state import in_usual_torch
from exporter.core.base.version import VERSION

if TYPE_CHECKING:
    from exporter.calibration.record import Calibration as Calibration
    from exporter.calibration.settings import CalibrationSettings as CalibrationSettings
    from exporter.core.base.errors import UserError as UserError
    from exporter.core.base.outputs import to_grid as to_grid
    from exporter.core.base.progress import CallbackStages as CallbackStages
    from exporter.core.base.progress import Stages as Stages
    from exporter.core.base.records import Schedule as Schedule
    from exporter.core.base.targets import TARGETS as TARGETS
    from exporter.core.base.vocabulary import InputKind as InputKind
    from exporter.core.base.vocabulary import Layout as Layout
    from exporter.core.base.vocabulary import Method as Method
    from exporter.core.base.vocabulary import Precision as Precision
    from exporter.core.schedule.prune import Prune as Prune
    from exporter.engines.choice import RunSettings as RunSettings
    from exporter.jobs.compile import compare_methods, compile_model
    from exporter.jobs.eval_models import models_at as models_at
    from exporter.jobs.eval_models import torch_models as torch_models
    from exporter.jobs.evaluate import evaluate_models
    from exporter.jobs.finetune import finetune_model
    from exporter.jobs.inspect import inspect_artefact
    from exporter.jobs.recipe import Images as Images
    from exporter.jobs.recipe import Lowering as Lowering
    from exporter.jobs.recipe import Measuring as Measuring
    from exporter.jobs.recipe import Recipe as Recipe
    from exporter.jobs.steps import bench as bench
    from exporter.jobs.steps import calibrate as calibrate
    from exporter.jobs.steps import check as check
    from exporter.jobs.steps import compile_vit as compile_vit
    from exporter.jobs.steps import dense as dense
    from exporter.jobs.steps import export as export
    from exporter.jobs.steps import load_model as load_model
    from exporter.jobs.steps import plan as plan
    from exporter.jobs.steps import prune as prune
    from exporter.jobs.steps import save as save
    from exporter.measure.batch_sweep import BenchSettings as BenchSettings
    from exporter.measure.settings import EvalSettings as EvalSettings
    from exporter.models.request import ModelRequest as ModelRequest
    from exporter.training.settings import FinetuneSettings as FinetuneSettings
    from exporter.training.settings import preset_values as preset_values
    from exporter.tuning.choice import TuneSettings as TuneSettings
    from exporter.tuning.tune import tune as tune

    compare, compile, evaluate = compare_methods, compile_model, evaluate_models  # noqa: A001
    finetune, inspect = finetune_model, inspect_artefact

__version__ = VERSION

# The module of each public name. They are imported on first use, so `import exporter` needs no library.
_PLACES = {
    "core.base.outputs": ("to_grid",),
    "calibration.record": ("Calibration",),
    "calibration.settings": ("CalibrationSettings",),
    "core.base.errors": ("UserError",),
    "measure.batch_sweep": ("BenchSettings",),
    "models.request": ("ModelRequest",),
    "core.base.records": ("Schedule",),
    "engines.choice": ("RunSettings",),
    "core.schedule.prune": ("Prune",),
    "core.base.targets": ("TARGETS",),
    "training.settings": ("FinetuneSettings", "preset_values"),
    "core.base.vocabulary": ("InputKind", "Layout", "Method", "Precision"),
    "jobs.eval_models": ("models_at", "torch_models"),
    "core.base.progress": ("CallbackStages", "Stages"),
    "measure.settings": ("EvalSettings",),
    "jobs.recipe": ("Images", "Lowering", "Measuring", "Recipe"),
    "jobs.steps": (
        "bench",
        "calibrate",
        "check",
        "compile_vit",
        "dense",
        "export",
        "load_model",
        "plan",
        "prune",
        "save",
    ),
    "tuning.choice": ("TuneSettings",),
    "tuning.tune": ("tune",),
}
_PUBLIC = {
    **{name: (place, name) for place, names in _PLACES.items() for name in names},
    "compare": ("jobs.compile", "compare_methods"),
    "compile": ("jobs.compile", "compile_model"),
    "evaluate": ("jobs.evaluate", "evaluate_models"),
    "finetune": ("jobs.finetune", "finetune_model"),
    "inspect": ("jobs.inspect", "inspect_artefact"),
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
    if not isinstance(value, FunctionType):
        return value
    function = in_usual_torch(with_checked_arguments(value, name))
    # Under this name a pickle of it is found, as another process is sent it.
    function.__module__, function.__qualname__ = __name__, name
    return function


def __dir__() -> list[str]:
    return sorted(__all__)
