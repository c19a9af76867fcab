"""Engines as `build` leaves them."""

from pathlib import Path
from typing import Any

from exporter.core.base.settings import fields_of
from exporter.engines.builder import save_engine
from exporter.engines.manifest import Built, EngineManifest, manifest_of
from exporter.engines.settings import BuildSettings

BUILT = Built("11.4.0", "13.0", "580", "GPU", "9.0")


def manifest(**different: Any) -> EngineManifest:
    """An engine of batches 1 and 8 without anything special; settings of its build may differ too."""
    sums = ("engine_sha256", "onnx", "onnx_sha256", "plugin_sha256")
    own = {
        name: different.pop(name)
        for name in fields_of(BuildSettings)
        if name in different
    }
    settings = BuildSettings(**{"batches": (1, 8), **own})
    return EngineManifest(
        **{**dict.fromkeys(sums, ""), "settings": settings, "built": BUILT, **different}
    )


def saved_engine(folder: Path, **different: Any) -> tuple[Path, Path]:
    """An engine, which has its manifest beside it, and the model that it was built of."""
    engine, onnx = folder / "m.engine", folder / "m.onnx"
    onnx.write_bytes(b"model")
    made = manifest_of(b"plan", onnx, BuildSettings(), BUILT)
    sums = {
        name: getattr(made, name) for name in ("engine_sha256", "onnx_sha256", "onnx")
    }
    save_engine(engine, b"plan", manifest(**{**sums, **different}))
    return engine, onnx


def everything(folder: Path) -> BuildSettings:
    """All that can be asked for, but the compatibility with other hardware."""
    return BuildSettings(
        version_compatible=True,
        tf32=True,
        plugin=folder / "lib.so",
        optimization_level=5,
    )
