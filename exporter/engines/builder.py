"""Build an engine from an ONNX file, by TensorRT or TensorRT for RTX; write it, its manifest and its layers.

Every layer has the graph's precision: TensorRT 11 and TensorRT for RTX always do this, TensorRT 10 needs a flag.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.files import written_beside
from exporter.engines.layers import Listed, layers_path
from exporter.engines.manifest import EngineManifest, manifest_path
from exporter.engines.plugin_library import register_library
from exporter.engines.settings import BuildSettings
from exporter.engines.tool import Tool, major_version

logger = logging.getLogger(__name__)

NO_WIDTHS: Mapping[str, int] = MappingProxyType({})


def build_plan(
    tool: Tool,
    onnx: Path,
    settings: BuildSettings,
    *,
    sm: int = 0,
    cache: Path | None = None,
    widths: Mapping[str, int] = NO_WIDTHS,
) -> bytes:
    """Build an engine, which takes minutes for a large ViT, and return it serialised.

    Args:
        tool: What builds it.
        onnx: The model.
        settings: Those of the build; the plugin library is checked.
        sm: The compute capability to build for ahead of time, 80 for 8.0; 0 for the GPU that is here.
        cache: A timing cache, read if it exists and written after the build.
        widths: The largest sizes, by input name, of dynamic dimensions other than the batch.
    """
    with tool.in_one_line(onnx, f"a model that {tool.runtime.title} can build"):
        if settings.plugin is not None:
            register_library(tool.trt.get_plugin_registry(), settings.plugin)
        # From the file, not its bytes: the parser then finds initializers in other files of the folder.
        parsed = tool.polygraphy.network_from_onnx_path(
            str(onnx), strongly_typed=_asks_for_types(tool)
        )
        if tool.runtime.ahead and tool.log.cause:
            expected = "a model that its parser takes as it is"
            raise ArtefactError(onnx, tool.log.cause, expected)
        builder, network, _ = parsed
        profiles = [
            _profile(tool, network, batches, widths) for batches in settings.profiles
        ]
        choices = _choices(tool, settings, sm, cache)
        config = tool.create_config(profiles=profiles, **choices)(builder, network)
        # On by default; here it is off unless requested.
        set_tf32 = config.set_flag if settings.tf32 else config.clear_flag
        set_tf32(tool.trt.BuilderFlag.TF32)
        save = None if cache is None else str(cache)
        plan = tool.polygraphy.engine_bytes_from_network(
            parsed, config, save_timing_cache=save
        )
        return bytes(plan)


def _asks_for_types(tool: Tool) -> bool:
    """Whether strong typing is a flag: later versions have no other, and deprecate it."""
    return not tool.runtime.ahead and major_version(tool.version) <= 10


def _choices(
    tool: Tool, settings: BuildSettings, sm: int, cache: Path | None
) -> dict[str, Any]:
    """Return what Polygraphy configures; None is TensorRT's own choice."""
    choices = {
        "builder_optimization_level": settings.optimization_level,
        "version_compatible": settings.version_compatible,
        "hardware_compatibility_level": _hardware(tool.trt, settings.hardware),
    }
    if tool.runtime.ahead:
        return {**choices, "compute_capabilities": [divmod(sm, 10)]}
    is_cached = cache is not None and cache.is_file()
    return {**choices, "load_timing_cache": str(cache) if is_cached else None}


def _hardware(trt: Any, level: str) -> Any:
    """Return TensorRT's member for a compatibility level; UserError in a version without it."""
    if level == "none":
        return None
    name = level.upper().replace("-", "_")
    member = getattr(trt.HardwareCompatibilityLevel, name, None)
    if member is None:
        got = f"TensorRT {trt.__version__}, which has no {name}"
        raise UserError("hardware", got, "a version that has")
    return member


def _profile(
    tool: Tool, network: Any, batches: tuple[int, int], widths: Mapping[str, int]
) -> Any:
    """Create a profile from the least to the largest batch; kernels are optimised for the largest."""
    profile = tool.polygraphy.Profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        sizes = tuple(tensor.shape)[1:]
        if any(size < 0 for size in sizes) and tensor.name not in widths:
            got = f"{tensor.name} of sizes {list(sizes)}"
            expected = "static sizes except for the batch"
            raise UserError(
                "engine", got, expected, 'layout = "padded" in a recipe has them'
            )
        least = (batches[0], *(abs(size) for size in sizes))
        largest = (widths[tensor.name] if size < 0 else size for size in sizes)
        most = (batches[1], *largest)
        profile.add(tensor.name, min=least, opt=most, max=most)
    return profile


def inspected(tool: Tool, plan: bytes) -> tuple[Listed, ...]:
    """Return what the inspector lists of each profile of a plan just built.

    Nothing where that fails: the engine may run. Without an execution context the inspector states no types for
    tensors of dynamic sizes, and it does not list profiles apart: each has a context, at its largest sizes.
    """
    try:
        with tool.in_one_line("the engine just built", "one that TensorRT can run"):
            return tuple(_profiles(tool, plan))
    except UserError as error:
        logger.warning("the engine is written without its audit: %s", error)
        return ()


def _profiles(tool: Tool, plan: bytes) -> Iterator[Listed]:
    engine = tool.polygraphy.engine_from_bytes(plan)
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    is_input = tool.trt.TensorIOMode.INPUT
    inputs = [name for name in names if engine.get_tensor_mode(name) == is_input]
    for profile in range(engine.num_optimization_profiles):
        # It holds the memory of the activations, so only one exists at a time.
        context = engine.create_execution_context()
        context.set_optimization_profile_async(profile, 0)
        for name in inputs:
            largest = engine.get_tensor_profile_shape(name, profile)[-1]
            context.set_input_shape(name, largest)
        inspector = engine.create_engine_inspector()
        inspector.execution_context = context
        form = tool.trt.LayerInformationFormat.JSON
        yield json.loads(inspector.get_engine_information(form))


def save_engine(
    path: Path, plan: bytes, manifest: EngineManifest, layers: tuple[Listed, ...] = ()
) -> None:
    """Write an engine, its layers (what the inspector lists of each profile) and its manifest.

    OutputError where a file cannot be written.
    """
    with written_beside(path) as partial:
        partial.write_bytes(plan)
    layers_path(path).unlink(missing_ok=True)  # of an earlier engine
    if layers:
        with written_beside(layers_path(path)) as partial:
            content = json.dumps({"profiles": layers}, indent=1)
            partial.write_text(content, encoding="utf-8")
    # The manifest is written last: an engine without its manifest is refused.
    save_json(manifest, manifest_path(path))
