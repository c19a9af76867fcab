"""A deployment compiler for pruned Vision Transformers."""

import importlib
from typing import Any

__version__ = "0.1.0"

# Where each public name lives. They are imported when they are used: `import exporter` needs numpy alone.
_PUBLIC = {
    "Recipe": ("exporter.recipe", "Recipe"),
    "UserError": ("exporter.errors", "UserError"),
    "bench": ("exporter.deployment.bench", "bench"),
    "calibrate": ("exporter.compilation.steps", "calibrate"),
    "check": ("exporter.parity.check", "check"),
    "compile": ("exporter.compilation.compile", "compile_model"),
    "export": ("exporter.compilation.steps", "export"),
    "inspect": ("exporter.inspection", "inspect_artefact"),
    "load_model": ("exporter.compilation.steps", "load_model"),
    "plan": ("exporter.compilation.steps", "plan"),
    "prune": ("exporter.compilation.steps", "prune"),
    "search": ("exporter.compilation.search", "search"),
}

__all__ = [*_PUBLIC, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    return getattr(importlib.import_module(module), attribute)
