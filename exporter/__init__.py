"""A deployment compiler for pruned Vision Transformers."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.calibration.record import Calibration as Calibration
    from exporter.calibration.settings import CalibrationSettings as CalibrationSettings
    from exporter.errors import UserError as UserError
    from exporter.evaluation.benchmark.batch_sweep import BenchSettings as BenchSettings
    from exporter.models.networks import ModelRequest as ModelRequest
    from exporter.ops.to_grid import to_grid as to_grid
    from exporter.records import Schedule as Schedule
    from exporter.runtimes.choice import RunSettings as RunSettings
    from exporter.schedule.plan import ScheduleSettings as ScheduleSettings
    from exporter.targets import TARGETS as TARGETS
    from exporter.training.settings import FinetuneSettings as FinetuneSettings
    from exporter.training.settings import preset_values as preset_values
    from exporter.vocabulary import InputKind as InputKind
    from exporter.vocabulary import Layout as Layout
    from exporter.vocabulary import Method as Method
    from exporter.vocabulary import Precision as Precision
    from exporter.workflows.chain import bench as bench
    from exporter.workflows.chain import calibrate as calibrate
    from exporter.workflows.chain import check as check
    from exporter.workflows.chain import export as export
    from exporter.workflows.chain import load_model as load_model
    from exporter.workflows.chain import plan as plan
    from exporter.workflows.chain import save as save
    from exporter.workflows.compiling.compile import compile_model
    from exporter.workflows.evaluating.evaluate import evaluate_models
    from exporter.workflows.evaluating.models import models_at as models_at
    from exporter.workflows.evaluating.models import torch_models as torch_models
    from exporter.workflows.evaluating.settings import EvalSettings as EvalSettings
    from exporter.workflows.finetuning.finetune import finetune_model
    from exporter.workflows.inspect import inspect_artefact
    from exporter.workflows.progress import CallbackStages as CallbackStages
    from exporter.workflows.progress import Stages as Stages
    from exporter.workflows.recipes.amount import Given as Given
    from exporter.workflows.recipes.amount import MacShare as MacShare
    from exporter.workflows.recipes.amount import Rates as Rates
    from exporter.workflows.recipes.amount import Rho as Rho
    from exporter.workflows.recipes.job import Job as Job
    from exporter.workflows.recipes.recipe import Recipe as Recipe
    from exporter.workflows.recipes.requests import CalibrationSource as CalibrationSource
    from exporter.workflows.recipes.requests import Images as Images
    from exporter.workflows.recipes.requests import Lowering as Lowering
    from exporter.workflows.recipes.requests import Measuring as Measuring
    from exporter.workflows.recipes.resolve import resolve as resolve
    from exporter.workflows.steps import dense as dense
    from exporter.workflows.steps import prune as prune
    from exporter.workflows.tuning.choice import TuneSettings as TuneSettings
    from exporter.workflows.tuning.tune import tune as tune

    compile, evaluate = compile_model, evaluate_models  # noqa: A001
    finetune, inspect = finetune_model, inspect_artefact

__version__ = "0.2.0"

# The module of each public name. They are imported on first use, so `import exporter` needs no library.
_PLACES = {
    "calibration.record": ("Calibration",),
    "calibration.settings": ("CalibrationSettings",),
    "errors": ("UserError",),
    "evaluation.benchmark.batch_sweep": ("BenchSettings",),
    "models.networks": ("ModelRequest",),
    "ops.to_grid": ("to_grid",),
    "records": ("Schedule",),
    "runtimes.choice": ("RunSettings",),
    "schedule.plan": ("ScheduleSettings",),
    "targets": ("TARGETS",),
    "training.settings": ("FinetuneSettings", "preset_values"),
    "vocabulary": ("InputKind", "Layout", "Method", "Precision"),
    "workflows.chain": ("bench", "calibrate", "check", "export", "load_model", "plan", "save"),
    "workflows.evaluating.models": ("models_at", "torch_models"),
    "workflows.evaluating.settings": ("EvalSettings",),
    "workflows.progress": ("Stages", "CallbackStages"),
    "workflows.recipes.amount": ("Given", "MacShare", "Rates", "Rho"),
    "workflows.recipes.job": ("Job",),
    "workflows.recipes.recipe": ("Recipe",),
    "workflows.recipes.requests": ("CalibrationSource", "Images", "Lowering", "Measuring"),
    "workflows.recipes.resolve": ("resolve",),
    "workflows.steps": ("dense", "prune"),
    "workflows.tuning.choice": ("TuneSettings",),
    "workflows.tuning.tune": ("tune",),
}
_PUBLIC = {
    **{name: (place, name) for place, names in _PLACES.items() for name in names},
    "compile": ("workflows.compiling.compile", "compile_model"),
    "evaluate": ("workflows.evaluating.evaluate", "evaluate_models"),
    "finetune": ("workflows.finetuning.finetune", "finetune_model"),
    "inspect": ("workflows.inspect", "inspect_artefact"),
}

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(importlib.import_module(f"exporter.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
