"""As much of TensorRT's Python API as a build touches, with the enum members of two versions.

The names are those of the real bindings of 10.16.1.11 and 11.4.0.106. Values are made up, and
differ between versions as the real ones do.
"""

import json
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from exporter.engines.tensorrt_api import major_version

# By the major version.
FLAGS = {
    10: ("FP16", "BF16", "INT8", "TF32", "VERSION_COMPATIBLE"),
    11: ("DEBUG", "TF32", "VERSION_COMPATIBLE"),
}
NETWORK_FLAGS = {
    10: ("EXPLICIT_BATCH", "STRONGLY_TYPED", "PREFER_AOT_PYTHON_PLUGINS"),
    11: ("STRONGLY_TYPED", "PREFER_AOT_PYTHON_PLUGINS"),
}


IO_MODES = SimpleNamespace(INPUT="IN", OUTPUT="OUT")
UNTOLD = "N/A due to dynamic shapes"


class Context:
    """An execution context: it needs a profile, then the sizes of every input within that profile."""

    def __init__(self, engine: "InspectedEngine") -> None:
        self._engine = engine
        self.profile: int | None = None
        self.shape: tuple[int, ...] | None = None

    def set_optimization_profile_async(
        self, profile_index: int, stream_handle: int
    ) -> bool:
        self.profile = profile_index
        return not self._engine.refuses

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert self.profile is not None
        fits = tuple(shape) == self._engine.largest(self.profile)
        self.shape = tuple(shape) if fits else None
        return fits


class InspectedEngine:
    """Images in, logits out. Profile i has a layer `gemm i`, fused attention in the first profile alone."""

    num_io_tensors = 2

    def __init__(self, batches: tuple[int, ...], *, refuses: bool = False) -> None:
        self.batches, self.refuses = batches, refuses

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.batches)

    def largest(self, profile: int) -> tuple[int, ...]:
        return (self.batches[profile], 3, 4, 4)

    def get_tensor_name(self, index: int) -> str:
        return ("images", "logits")[index]

    def get_tensor_mode(self, name: str) -> str:
        return "IN" if name == "images" else "OUT"

    def get_tensor_profile_shape(
        self, name: str, profile_index: int
    ) -> list[tuple[int, ...]]:
        return [self.largest(profile_index)] * 3

    def create_execution_context(self) -> Context:
        return Context(self)

    def create_engine_inspector(self) -> Any:
        inspector = SimpleNamespace(execution_context=None)
        inspector.get_engine_information = lambda form: self._told(
            inspector.execution_context
        )
        return inspector

    def _told(self, context: Context | None) -> str:
        ready = context is not None and context.shape is not None
        number = (
            context.profile
            if context is not None and context.profile is not None
            else 0
        )
        names = [f"gemm {number}", *(["_gemm_mha_v2"] if number == 0 else [])]
        outputs = [{"Format/Datatype": "Float" if ready else UNTOLD}]
        return json.dumps(
            {
                "Layers": [
                    {"Name": name, "LayerType": "gemm", "Outputs": outputs}
                    for name in names
                ]
            }
        )


class FakeRegistry:
    """A plugin registry: a library registers its plugins once, and is not loaded a second time."""

    def __init__(
        self, libraries: list[str], plugins: tuple[str, ...] = ("CdfRetain",)
    ) -> None:
        self._libraries, self._plugins = libraries, plugins

    def load_library(self, path: str) -> object | None:
        if self._libraries:
            return None
        self._libraries.append(path)
        return object()

    def get_creator(
        self, kind: str, version: str, plugin_namespace: str
    ) -> object | None:
        named = kind in self._plugins and (version, plugin_namespace) == ("1", "star")
        return object() if named and self._libraries else None


def fake_tensorrt(  # noqa: C901  (one class for each of TensorRT's)
    version: str, *, parses: bool = True, builds: bool = True, input_shape: Any = None
) -> Any:
    """A module that records what was asked of it in `asked`."""
    major = major_version(version)
    asked: dict[str, Any] = {
        "flags": set(),
        "cleared": set(),
        "profiles": [],
        "libraries": [],
        "added": 0,
    }
    names = {
        "BuilderFlag": FLAGS[major],
        "NetworkDefinitionCreationFlag": NETWORK_FLAGS[major],
        "HardwareCompatibilityLevel": (
            "NONE",
            "AMPERE_PLUS",
            "SAME_COMPUTE_CAPABILITY",
        ),
        "ProfilingVerbosity": ("LAYER_NAMES_ONLY", "NONE", "DETAILED"),
        "LayerInformationFormat": ("ONELINE", "JSON"),
    }
    enums = {
        name: IntEnum(name, {each: at for at, each in enumerate(made)})
        for name, made in names.items()
    }

    class ILogger:
        ERROR, INTERNAL_ERROR, INFO = "error", "internal error", "info"

    class Profile:
        def set_shape(self, name: str, *shapes: tuple[int, ...]) -> None:
            asked["profiles"].append((name, shapes))

    class Config(SimpleNamespace):
        def set_flag(self, flag: Any) -> None:
            asked["flags"].add(flag.name)

        def clear_flag(self, flag: Any) -> None:
            asked["cleared"].add(flag.name)

        def add_optimization_profile(self, profile: Profile) -> int:
            asked["added"] += 1
            return int(asked["added"]) - 1

        def create_timing_cache(self, content: bytes) -> Any:
            asked["timings"] = content
            return SimpleNamespace(serialize=lambda: content + b"more")

        def set_timing_cache(self, timings: Any, ignore_mismatch: bool) -> bool:
            return True

    config = Config()
    asked["config"] = config
    shape = input_shape or (-1, 3, 4, 4)
    network = SimpleNamespace(
        num_inputs=1,
        get_input=lambda index: SimpleNamespace(name="images", shape=shape),
    )

    class Builder:
        def __init__(self, log: Any) -> None:
            self.log = log

        def get_plugin_registry(self) -> Any:
            return registry

        def create_network(self, flags: int) -> Any:
            asked["network_flags"] = flags
            return network

        def create_builder_config(self) -> Config:
            asked["added"] = 0
            return config

        def create_optimization_profile(self) -> Profile:
            return Profile()

        def build_serialized_network(
            self, network: Any, config: Config
        ) -> bytes | None:
            if not builds:
                self.log.log(
                    ILogger.ERROR, "[E] no implementation for node context_01/softmax"
                )
            return b"plan" if builds else None

    class OnnxParser:
        num_errors = 1

        def __init__(self, network: Any, log: Any) -> None: ...

        def parse_from_file(self, path: str) -> bool:
            asked["parsed"] = path
            return parses

        def get_error(self, index: int) -> Any:
            return SimpleNamespace(desc=lambda: "no importer for CdfRetain")

    class Runtime:
        engine_host_code_allowed = False

        def __init__(self, log: Any) -> None: ...

        def deserialize_cuda_engine(self, plan: bytes) -> Any:
            return InspectedEngine(tuple(range(1, asked["added"] + 1)))

        def get_plugin_registry(self) -> Any:
            return registry

    registry = FakeRegistry(asked["libraries"])
    return SimpleNamespace(
        **enums,
        __version__=version,
        asked=asked,
        ILogger=ILogger,
        Builder=Builder,
        OnnxParser=OnnxParser,
        Runtime=Runtime,
        TensorIOMode=IO_MODES,
        init_libnvinfer_plugins=lambda log, namespace: True,
    )
