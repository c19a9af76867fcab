"""A deployment compiler for pruned Vision Transformers."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.errors import UserError as UserError
    from exporter.evaluation.parity.check_model import check as check
    from exporter.models.networks import ModelRequest as ModelRequest
    from exporter.ops.to_grid import to_grid as to_grid
    from exporter.runtimes.choice import RunSettings as RunSettings
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
    from exporter.workflows.bench import bench as bench
    from exporter.workflows.compile import compile_model
    from exporter.workflows.eval import evaluate_models
    from exporter.workflows.eval_models import models_at as models_at
    from exporter.workflows.eval_settings import EvalSettings as EvalSettings
    from exporter.workflows.eval_torch import torch_models as torch_models
    from exporter.workflows.finetune import finetune_model as finetune  # noqa: F401
    from exporter.workflows.inspect import inspect_artefact
    from exporter.workflows.planning import Planner as Planner
    from exporter.workflows.planning import plan as plan
    from exporter.workflows.recipe import Recipe as Recipe
    from exporter.workflows.requests import CalibrationSource as CalibrationSource
    from exporter.workflows.requests import Images as Images
    from exporter.workflows.requests import Lowering as Lowering
    from exporter.workflows.requests import Measuring as Measuring
    from exporter.workflows.resolve import Job as Job
    from exporter.workflows.resolve import resolve as resolve
    from exporter.workflows.search import search as search
    from exporter.workflows.steps import calibrate as calibrate
    from exporter.workflows.steps import export as export
    from exporter.workflows.steps import load_model as load_model
    from exporter.workflows.steps import prune as prune
    from exporter.workflows.tuning.settings import TuneSettings as TuneSettings
    from exporter.workflows.tuning.tune import tune as tune

    compile, evaluate, inspect = compile_model, evaluate_models, inspect_artefact  # noqa: A001

__version__ = "0.2.0"

# The module of each public name. They are imported on first use, so `import exporter` needs no library.
_PLACES = {
    "errors": ("UserError",),
    "models.networks": ("ModelRequest",),
    "ops.to_grid": ("to_grid",),
    "runtimes.choice": ("RunSettings",),
    "training.preset_values": ("preset_values",),
    "training.settings": ("FinetuneSettings",),
    "vocabulary": ("InputKind", "Layout", "Method", "Precision"),
    "workflows.amount": ("Given", "MacShare", "Rates", "Rho", "Speedup"),
    "workflows.bench": ("bench",),
    "workflows.eval_models": ("models_at",),
    "workflows.eval_settings": ("EvalSettings",),
    "workflows.eval_torch": ("torch_models",),
    "workflows.planning": ("Planner", "plan"),
    "workflows.recipe": ("Recipe",),
    "workflows.requests": ("CalibrationSource", "Images", "Lowering", "Measuring"),
    "workflows.resolve": ("Job", "resolve"),
    "workflows.search": ("search",),
    "workflows.steps": ("calibrate", "export", "load_model", "prune"),
    "workflows.tuning.settings": ("TuneSettings",),
    "workflows.tuning.tune": ("tune",),
}
_PUBLIC = {
    **{name: (place, name) for place, names in _PLACES.items() for name in names},
    "check": ("evaluation.parity.check_model", "check"),
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
