"""A deployment compiler for pruned Vision Transformers."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.calibration.record import Calibration as Calibration
    from exporter.calibration.settings import CalibrationSettings as CalibrationSettings
    from exporter.errors import UserError as UserError
    from exporter.evaluation.benchmark.settings import BenchSettings as BenchSettings
    from exporter.models.networks import ModelRequest as ModelRequest
    from exporter.ops.to_grid import to_grid as to_grid
    from exporter.records import Schedule as Schedule
    from exporter.runtimes.choice import RunSettings as RunSettings
    from exporter.schedule.plan import ScheduleSettings as ScheduleSettings
    from exporter.targets import TARGETS as TARGETS
    from exporter.training.preset_values import preset_values as preset_values
    from exporter.training.settings import FinetuneSettings as FinetuneSettings
    from exporter.vocabulary import InputKind as InputKind
    from exporter.vocabulary import Layout as Layout
    from exporter.vocabulary import Method as Method
    from exporter.vocabulary import Precision as Precision
    from exporter.workflows.amount import Given as Given
    from exporter.workflows.amount import MacShare as MacShare
    from exporter.workflows.amount import Rates as Rates
    from exporter.workflows.amount import Rho as Rho
    from exporter.workflows.amount import Speedup as Speedup
    from exporter.workflows.chain import bench as bench
    from exporter.workflows.chain import calibrate as calibrate
    from exporter.workflows.chain import check as check
    from exporter.workflows.chain import export as export
    from exporter.workflows.chain import load_model as load_model
    from exporter.workflows.chain import plan as plan
    from exporter.workflows.chain import save as save
    from exporter.workflows.compile import compile_model
    from exporter.workflows.eval import evaluate_models
    from exporter.workflows.eval_models import models_at as models_at
    from exporter.workflows.eval_settings import EvalSettings as EvalSettings
    from exporter.workflows.eval_torch import torch_models as torch_models
    from exporter.workflows.finetune import finetune_model as finetune  # noqa: F401
    from exporter.workflows.inspect import inspect_artefact
    from exporter.workflows.job import Job as Job
    from exporter.workflows.progress import Stages as Stages
    from exporter.workflows.progress import Told as Told
    from exporter.workflows.recipe import Recipe as Recipe
    from exporter.workflows.requests import CalibrationSource as CalibrationSource
    from exporter.workflows.requests import Images as Images
    from exporter.workflows.requests import Lowering as Lowering
    from exporter.workflows.requests import Measuring as Measuring
    from exporter.workflows.resolve import resolve as resolve
    from exporter.workflows.search import search as search
    from exporter.workflows.steps import dense as dense
    from exporter.workflows.steps import prune as prune
    from exporter.workflows.tuning.settings import TuneSettings as TuneSettings
    from exporter.workflows.tuning.tune import tune as tune

    compile, evaluate, inspect = compile_model, evaluate_models, inspect_artefact  # noqa: A001

__version__ = "0.2.0"

# The module of each public name. They are imported on first use, so `import exporter` needs no library.
_PLACES = {
    "calibration.record": ("Calibration",),
    "calibration.settings": ("CalibrationSettings",),
    "errors": ("UserError",),
    "evaluation.benchmark.settings": ("BenchSettings",),
    "models.networks": ("ModelRequest",),
    "ops.to_grid": ("to_grid",),
    "records": ("Schedule",),
    "runtimes.choice": ("RunSettings",),
    "schedule.plan": ("ScheduleSettings",),
    "targets": ("TARGETS",),
    "training.preset_values": ("preset_values",),
    "training.settings": ("FinetuneSettings",),
    "vocabulary": ("InputKind", "Layout", "Method", "Precision"),
    "workflows.amount": ("Given", "MacShare", "Rates", "Rho", "Speedup"),
    "workflows.chain": ("bench", "calibrate", "check", "export", "load_model", "plan", "save"),
    "workflows.eval_models": ("models_at",),
    "workflows.eval_settings": ("EvalSettings",),
    "workflows.eval_torch": ("torch_models",),
    "workflows.job": ("Job",),
    "workflows.progress": ("Stages", "Told"),
    "workflows.recipe": ("Recipe",),
    "workflows.requests": ("CalibrationSource", "Images", "Lowering", "Measuring"),
    "workflows.resolve": ("resolve",),
    "workflows.search": ("search",),
    "workflows.steps": ("dense", "prune"),
    "workflows.tuning.settings": ("TuneSettings",),
    "workflows.tuning.tune": ("tune",),
}
_PUBLIC = {
    **{name: (place, name) for place, names in _PLACES.items() for name in names},
    "compile": ("workflows.compile", "compile_model"),
    "evaluate": ("workflows.eval", "evaluate_models"),
    "finetune": ("workflows.finetune", "finetune_model"),
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
