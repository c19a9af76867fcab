"""A deployment compiler for pruned Vision Transformers."""

import importlib
from typing import Any

__version__ = "0.1.0"

# Where each public name lives. They are imported when they are used: `import exporter` needs numpy alone.
_PUBLIC = {
    "Recipe": ("exporter.workflows.recipe", "Recipe"),
    "UserError": ("exporter.errors", "UserError"),
    "bench": ("exporter.workflows.bench", "bench"),
    "calibrate": ("exporter.workflows.steps", "calibrate"),
    "check": ("exporter.evaluation.parity.check_model", "check"),
    "compile": ("exporter.workflows.compile", "compile_model"),
    "export": ("exporter.workflows.steps", "export"),
    "inspect": ("exporter.workflows.inspect", "inspect_artefact"),
    "load_model": ("exporter.workflows.steps", "load_model"),
    "plan": ("exporter.workflows.steps", "plan"),
    "prune": ("exporter.workflows.steps", "prune"),
    "search": ("exporter.workflows.search", "search"),
}

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(importlib.import_module(module), attribute)
