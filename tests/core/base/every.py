"""Every class of settings of the package."""

import importlib

from exporter.core.base.settings import Settings

MODULES = (
    "calibration.settings",
    "depth.plan",
    "depth.predictor",
    "measure.batch_sweep",
    "measure.settings",
    "engines.choice",
    "engines.settings",
    "core.schedule.prune",
    "training.settings",
    "jobs.recipe",
    "models.request",
    "serve.loaders",
    "tuning.choice",
)


def every_settings() -> list[type[Settings]]:
    """Every class of settings of the package."""
    for name in MODULES:
        importlib.import_module(f"exporter.{name}")
    kinds = [Settings]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each not in kinds]
    return [kind for kind in kinds[1:] if kind.__module__.startswith("exporter.")]
