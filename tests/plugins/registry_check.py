"""Load the plugin through TensorRT's own registry, as an application does; run in a process of its own.

An object of TensorRT's that outlives its library ends the process, so none is left at the end. A `Runtime` or a
`Builder` is not asked for: without a GPU either ends the process too.
"""

import importlib
import sys
from typing import Any

import numpy as np


def tensorrt() -> Any:
    """The full TensorRT where there is one, else its lean runtime, whose registry is the same."""
    try:
        return importlib.import_module("tensorrt")
    except ImportError:
        return importlib.import_module("tensorrt_lean_bindings")


def make(trt: Any, creator: Any, mass: float) -> Any:
    """A plugin of that mass, or None where it is refused."""
    field = trt.PluginField(
        "mass", np.array([mass], np.float32), trt.PluginFieldType.FLOAT32
    )
    return creator.create_plugin(
        "test", trt.PluginFieldCollection([field]), trt.TensorRTPhase.BUILD
    )


def check(library: str) -> None:
    """Raise AssertionError unless the registry finds the plugin and can use it."""
    trt = tensorrt()
    registry = trt.get_plugin_registry()
    before = len(registry.all_creators)
    handle = registry.load_library(library)
    assert len(registry.all_creators) == before + 1
    creator = registry.get_creator("CdfRetain", "1", "star")
    assert [(field.name, field.type) for field in creator.field_names] == [
        ("mass", trt.PluginFieldType.FLOAT32),
        ("widest", trt.PluginFieldType.INT32),
    ]
    plugin = make(trt, creator, 0.7)
    core, build = (
        plugin.get_capability_interface(kind) for kind in _kinds(trt, "CORE", "BUILD")
    )
    assert core.plugin_name == "CdfRetain"
    assert core.plugin_version == "1"
    assert core.plugin_namespace == "star"
    assert build.num_outputs == 3
    assert plugin.get_capability_interface(trt.PluginCapabilityType.RUNTIME) is not None
    assert make(trt, creator, 1.7) is None
    del plugin, core, build, creator
    registry.deregister_library(handle)
    assert len(registry.all_creators) == before


def _kinds(trt: Any, *names: str) -> list[Any]:
    return [getattr(trt.PluginCapabilityType, name) for name in names]


if __name__ == "__main__":
    check(sys.argv[1])
