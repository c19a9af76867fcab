"""What Polygraphy and TensorRT's Python API are asked for by a build and by a run; `trt.asked` has it.

The names are those of the real bindings of 10.16.1.11 and 11.4.0.106, and of Polygraphy 0.53.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from exporter.core.base.targets import TRT, Runtime
from exporter.engines.tool import Tool, log_of

IO_MODES = SimpleNamespace(INPUT="IN", OUTPUT="OUT")
UNTOLD = "N/A due to dynamic shapes"


class PolygraphyException(Exception):  # noqa: N818  (its real name)
    """What Polygraphy raises, after a line to its own log."""


class Context:
    """An execution context: it needs a profile, then the sizes of every input within that profile."""

    def __init__(self, engine: "InspectedEngine") -> None:
        self._engine = engine
        self.profile = 0
        self.shape: tuple[int, ...] | None = None

    def set_optimization_profile_async(
        self, profile_index: int, stream_handle: int
    ) -> None:
        self.profile = profile_index

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        fits = tuple(shape) == self._engine.largest(self.profile)
        self.shape = tuple(shape) if fits else None


class InspectedEngine:
    """Images in, logits out. Profile i has a layer `gemm i`, fused attention in the first profile alone."""

    shapes: ClassVar[dict[str, tuple[int, ...]]] = {
        "images": (-1, 3, 4, 4),
        "logits": (-1, 2),
    }
    num_io_tensors = len(shapes)

    def __init__(self, batches: tuple[int, ...]) -> None:
        self.batches = batches

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.batches)

    def largest(self, profile: int) -> tuple[int, ...]:
        return (self.batches[profile], 3, 4, 4)

    def get_tensor_name(self, index: int) -> str:
        return list(self.shapes)[index]

    def get_tensor_mode(self, name: str) -> str:
        return "IN" if name == "images" else "OUT"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[name]

    def get_tensor_dtype(self, name: str) -> type:
        return np.float32

    def get_tensor_profile_shape(
        self, name: str, profile_index: int
    ) -> list[tuple[int, ...]]:
        return [self.largest(profile_index)] * 3

    def create_execution_context(self) -> Context:
        return Context(self)

    def create_engine_inspector(self) -> Any:
        inspector = SimpleNamespace(execution_context=None)
        inspector.get_engine_information = lambda form: _layers(
            inspector.execution_context
        )
        return inspector


def _layers(context: Context) -> str:
    names = [
        f"gemm {context.profile}",
        *(["_gemm_mha_v2"] if context.profile == 0 else []),
    ]
    outputs = [{"Format/Datatype": "Float" if context.shape else UNTOLD}]
    layers = [{"Name": name, "LayerType": "gemm", "Outputs": outputs} for name in names]
    return json.dumps({"Layers": layers})


class FakeRegistry:
    """A plugin registry: a library registers its plugins once, and is not loaded a second time."""

    def __init__(self, libraries: list[str]) -> None:
        self._libraries = libraries

    def load_library(self, path: str) -> None:
        assert not self._libraries
        self._libraries.append(path)

    def get_creator(
        self, kind: str, version: str, plugin_namespace: str
    ) -> object | None:
        named = (kind, version, plugin_namespace) == ("CdfRetain", "1", "star")
        return object() if named and self._libraries else None


class FakeRunner:
    """Polygraphy's TrtRunner: its answer is the mean of an image, twice, in a buffer of its own."""

    def __init__(self, engine: Any, name: str) -> None:
        self.engine, self.profiles = engine, list[int]()
        self.buffer = np.zeros((32, 2), np.float32)
        self.context = SimpleNamespace(nvtx_verbosity="detailed")

    def activate(self) -> None: ...

    def deactivate(self) -> None: ...

    def set_profile(self, index: int) -> None:
        self.profiles.append(index)

    def infer(
        self, feed: dict[str, np.ndarray[Any, Any]], check_inputs: bool
    ) -> dict[str, Any]:
        images = feed["images"]
        self.buffer[: len(images)] = images.mean((1, 2, 3))[:, None]
        return {"logits": self.buffer[: len(images)]}


def fake_tool(
    version: str,
    *,
    parses: bool = True,
    builds: bool = True,
    input_shape: Any = None,
    runtime: Runtime = TRT,
) -> Tool:
    """A tool that builds a plan of no content, and loads an `InspectedEngine` with the profiles of the build."""
    trt = _trt(version)
    log, asked = log_of(trt), trt.asked

    def refuse(text: str) -> None:
        log.log(trt.ILogger.ERROR, text)
        raise PolygraphyException("see the log")

    def network(path: str, strongly_typed: bool) -> tuple[Any, Any, Any]:
        asked.update(parsed=path, strongly_typed=strongly_typed)
        if not parses:
            refuse("no importer for CdfRetain")
        images = SimpleNamespace(name="images", shape=input_shape or (-1, 3, 4, 4))
        parsed = SimpleNamespace(num_inputs=1, get_input=lambda index: images)
        return SimpleNamespace(), parsed, SimpleNamespace()

    def build(parsed: Any, config: Any, save_timing_cache: str | None) -> bytes:
        if save_timing_cache:
            Path(save_timing_cache).parent.mkdir(parents=True, exist_ok=True)
            Path(save_timing_cache).write_bytes(b"timings")
        if not builds:
            refuse("[E] no implementation for node context_01/softmax")
        return b"plan"

    polygraphy = SimpleNamespace(
        Profile=Profile,
        network_from_onnx_path=network,
        engine_bytes_from_network=build,
        engine_from_bytes=lambda plan: InspectedEngine(
            tuple(profile["images"][-1][0] for profile in asked["profiles"])
        ),
        TrtRunner=FakeRunner,
    )
    create = _config_of(asked)
    return Tool(runtime, trt, polygraphy, create, PolygraphyException, log)


class Profile(dict[str, tuple[Any, ...]]):
    """Polygraphy's profile."""

    def add(self, name: str, **shapes: Any) -> None:
        self[name] = (shapes["min"], shapes["opt"], shapes["max"])


def _config_of(asked: dict[str, Any]) -> Callable[..., Any]:
    def create(**choices: Any) -> Any:
        asked.update(choices)

        def set_flag(flag: str) -> None:
            asked["tf32"] = flag

        clear = lambda flag: asked.update(tf32=None)  # noqa: E731
        return lambda builder, network: SimpleNamespace(
            set_flag=set_flag, clear_flag=clear
        )

    return create


def _trt(version: str) -> Any:
    """The module, as far as it is asked for."""
    libraries = list[str]()
    registry = FakeRegistry(libraries)

    class ILogger:
        ERROR, INTERNAL_ERROR, INFO = "error", "internal error", "info"

    levels = {name: name for name in ("AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY")}
    return SimpleNamespace(
        __version__=version,
        asked={"libraries": libraries, "profiles": []},
        ILogger=ILogger,
        BuilderFlag=SimpleNamespace(TF32="TF32"),
        HardwareCompatibilityLevel=SimpleNamespace(**levels),
        LayerInformationFormat=SimpleNamespace(JSON="JSON"),
        ProfilingVerbosity=SimpleNamespace(NONE="none"),
        CudaGraphStrategy=SimpleNamespace(WHOLE_GRAPH_CAPTURE="whole"),
        TensorIOMode=IO_MODES,
        get_plugin_registry=lambda: registry,
        nptype=lambda dtype: dtype,
    )
