"""Every class of settings of the package."""

import importlib
from pathlib import Path

import exporter
from exporter.core.base.settings import Settings

ROOT = Path(exporter.__file__).parents[1]


def every_settings() -> list[type[Settings]]:
    """Every class of settings of the package."""
    for path in sorted((ROOT / "exporter").rglob("*.py")):
        if "(Settings" in path.read_text(encoding="utf-8"):
            module = path.relative_to(ROOT).with_suffix("")
            importlib.import_module(".".join(module.parts))
    kinds = [Settings]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each not in kinds]
    return [kind for kind in kinds[1:] if kind.__module__.startswith("exporter.")]
