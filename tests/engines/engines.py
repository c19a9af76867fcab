"""Engines as `build` leaves them, and one that is loaded."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from exporter.core.base.settings import fields_of
from exporter.engines.builder import save_engine
from exporter.engines.manifest import Built, EngineManifest, manifest_of
from exporter.engines.runner import LoadedEngine
from exporter.engines.settings import BuildSettings
from tests.engines.fake_tensorrt import IO_MODES

BUILT = Built("11.4.0", "13.0", "580", "GPU", "9.0")


class FakeEngine:
    """Images in, logits out, as TensorRT's ICudaEngine says it."""

    shapes: ClassVar[dict[str, tuple[int, ...]]] = {
        "images": (-1, 3, 2, 2),
        "logits": (-1, 2),
    }
    num_io_tensors = len(shapes)

    def get_tensor_name(self, index: int) -> str:
        return list(self.shapes)[index]

    def get_tensor_mode(self, name: str) -> str:
        return "OUT" if name == "logits" else "IN"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[name]

    def get_tensor_dtype(self, name: str) -> type:
        return np.float32


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
        serialise_plugin=True,
        optimization_level=5,
        aux_streams=0,
    )


def loaded_engine(engine: Any, **different: Any) -> LoadedEngine:
    """As `load_engine` gives it."""
    trt = SimpleNamespace(
        TensorIOMode=IO_MODES,
        ProfilingVerbosity=SimpleNamespace(NONE="none"),
        CudaGraphStrategy=SimpleNamespace(WHOLE_GRAPH_CAPTURE="whole"),
        nptype=lambda dtype: dtype,
    )
    return LoadedEngine(
        Path("m.engine"),
        trt,
        engine,
        SimpleNamespace(cause="", clear=lambda: None),
        manifest(**different),
    )
