"""As much of TensorRT's Python API as a build touches, with the enum members of two versions.

The names are those of the real bindings of 10.16.1.11 and 11.4.0.106. Values are made up, and
differ between versions as the real ones do.
"""

from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from tests.runtimes.tensorrt.fake_inspector import IO_MODES, InspectedEngine

TENS = ("10.7.0.23", "10.8.0.43", "10.16.1.11")
ELEVENS = ("11.0.0.5", "11.1.0.106", "11.4.0.106")
FLAGS = {
    **dict.fromkeys(TENS, ("FP16", "BF16", "INT8", "TF32", "VERSION_COMPATIBLE")),
    **dict.fromkeys(ELEVENS, ("DEBUG", "TF32", "VERSION_COMPATIBLE")),
}
NETWORK_FLAGS = {
    **dict.fromkeys(TENS, ("EXPLICIT_BATCH", "STRONGLY_TYPED", "PREFER_AOT_PYTHON_PLUGINS")),
    **dict.fromkeys(ELEVENS, ("STRONGLY_TYPED", "PREFER_AOT_PYTHON_PLUGINS")),
}


class FakeRegistry:
    """A plugin registry: a library registers its plugins once, and is not loaded a second time."""

    def __init__(self, libraries: list[str], plugins: tuple[str, ...] = ("CdfRetain", "SelectTopK")) -> None:
        self._libraries, self._plugins = libraries, plugins

    def load_library(self, path: str) -> object | None:
        if self._libraries:
            return None
        self._libraries.append(path)
        return object()

    def get_creator(self, kind: str, version: str, plugin_namespace: str) -> object | None:
        named = kind in self._plugins and (version, plugin_namespace) == ("1", "star")
        return object() if named and self._libraries else None


def fake_tensorrt(  # noqa: C901  (one class for each of TensorRT's)
    version: str,
    *,
    parses: bool = True,
    builds: bool = True,
    input_shape: Any = None,
) -> Any:
    """A module that records what was asked of it in `asked`."""
    asked: dict[str, Any] = {"flags": set(), "cleared": set(), "profiles": [], "libraries": [], "added": 0}
    names = {
        "BuilderFlag": FLAGS[version],
        "NetworkDefinitionCreationFlag": NETWORK_FLAGS[version],
        "HardwareCompatibilityLevel": ("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"),
        "ProfilingVerbosity": ("LAYER_NAMES_ONLY", "NONE", "DETAILED"),
        "LayerInformationFormat": ("ONELINE", "JSON"),
    }
    enums = {name: IntEnum(name, {each: at for at, each in enumerate(made)}) for name, made in names.items()}

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
        num_inputs=1, get_input=lambda index: SimpleNamespace(name="images", shape=shape)
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

        def build_serialized_network(self, network: Any, config: Config) -> bytes | None:
            if not builds:
                self.log.log(ILogger.ERROR, "[E] no implementation for node context_01/softmax")
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
