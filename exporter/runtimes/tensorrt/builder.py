"""Build a TensorRT engine from an ONNX file, with TensorRT 8.6, 10 or 11.

Every layer has the graph's precision: 11 always does this, 10 needs a flag, and 8.6 gets fp32 models only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exporter.errors import ArtefactError, UserError
from exporter.files import written_beside
from exporter.runtimes.tensorrt.inspection import inspect_profiles
from exporter.runtimes.tensorrt.plugin_library import register_library
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import (
    error_log,
    flag_bit,
    major_version,
    member,
    needs_strong_typing_flag,
)

__all__ = ["Engine", "build_engine"]

_MIB = 1 << 20
NO_WIDTHS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Engine:
    """A serialised engine, the inspector's JSON for each profile, and whether layers have the graph's types."""

    plan: bytes
    layers: tuple[str, ...]
    strongly_typed: bool


def build_engine(
    trt: Any, onnx: Path, settings: BuildSettings, cache: Path, widths: Mapping[str, int] = NO_WIDTHS
) -> Engine:
    """Build an engine, which takes minutes for a large ViT.

    Args:
        trt: The module `tensorrt`.
        onnx: The ONNX file; initializers may be in other files of its folder.
        settings: Batches, memory, compatibility. The caller has checked the plugin library.
        cache: File of the timing cache, read if it exists, and written after the build.
        widths: The largest size, by input name, of dynamic dimensions other than the batch.

    Raises:
        ArtefactError: The parser or the builder rejects the model; quotes TensorRT's message.
        UserError: This version of TensorRT lacks a requested feature.
    """
    log = error_log(trt)
    trt.init_libnvinfer_plugins(log, "")
    builder = trt.Builder(log)
    if settings.plugin is not None:
        register_library(builder.get_plugin_registry(), settings.plugin)
    strongly = needs_strong_typing_flag(trt)
    # 8.6 needs a flag to make the batch an explicit dimension; later versions always do.
    network = builder.create_network(
        flag_bit(trt, "EXPLICIT_BATCH") * (major_version(trt.__version__) < 10)
        | flag_bit(trt, "STRONGLY_TYPED") * strongly
    )
    _parse(trt, network, log, onnx)
    config = builder.create_builder_config()
    _configure(trt, config, settings)
    for batches in settings.profiles:
        config.add_optimization_profile(_profile(builder, network, batches, widths))
    timings = _timings(config, cache)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ArtefactError(str(onnx), log.last or "no reason", "a model that TensorRT can build")
    _keep_timings(timings, cache)
    content = bytes(plan)
    return Engine(
        content, inspect_profiles(trt, log, content), strongly or major_version(trt.__version__) > 10
    )


def _parse(trt: Any, network: Any, log: Any, onnx: Path) -> None:
    parser = trt.OnnxParser(network, log)
    # Parse the file, not its bytes: the parser then finds initializers in other files of the folder.
    if not parser.parse_from_file(str(onnx)):
        reasons = "; ".join(parser.get_error(index).desc() for index in range(parser.num_errors))
        raise ArtefactError(str(onnx), reasons or log.last, "a model that TensorRT's parser accepts")


def _configure(trt: Any, config: Any, settings: BuildSettings) -> None:
    if settings.workspace_mib:
        pool = member(trt, "MemoryPoolType", "WORKSPACE", "--workspace-mib")
        config.set_memory_pool_limit(pool, settings.workspace_mib * _MIB)
    # TensorRT enables TF32 by default; here it is off unless requested.
    tf32 = member(trt, "BuilderFlag", "TF32", "--tf32")
    (config.set_flag if settings.tf32 else config.clear_flag)(tf32)
    # The audit needs details; without this the inspector gives layer names only.
    config.profiling_verbosity = member(trt, "ProfilingVerbosity", "DETAILED", "the audit")
    if settings.hardware != "none":
        level = member(trt, "HardwareCompatibilityLevel", settings.hardware_level, "--hardware")
        config.hardware_compatibility_level = level
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    if settings.aux_streams is not None:
        config.max_aux_streams = settings.aux_streams
    if settings.version_compatible:
        config.set_flag(member(trt, "BuilderFlag", "VERSION_COMPATIBLE", "--version-compatible"))
    if settings.plugin is not None and settings.serialise_plugin:
        config.plugins_to_serialize = [str(settings.plugin)]


def _profile(builder: Any, network: Any, batches: tuple[int, int], widths: Mapping[str, int]) -> Any:
    """Create a profile from the least to the largest batch; kernels are optimised for the largest."""
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        sizes = tuple(tensor.shape)[1:]
        if any(size < 0 for size in sizes) and tensor.name not in widths:
            got, expected = f"{tensor.name} of sizes {list(sizes)}", "static sizes except for the batch"
            raise UserError("engine", got, expected, 'layout = "padded" in a recipe has them')
        least = (batches[0], *(1 if size < 0 else size for size in sizes))
        most = (batches[1], *(widths[tensor.name] if size < 0 else size for size in sizes))
        profile.set_shape(tensor.name, least, most, most)
    return profile


def _timings(config: Any, cache: Path) -> Any:
    timings = config.create_timing_cache(cache.read_bytes() if cache.is_file() else b"")
    # A cache of another version or GPU is not an error: start with an empty one.
    if timings is None or not config.set_timing_cache(timings, False):
        timings = config.create_timing_cache(b"")
        config.set_timing_cache(timings, False)
    return timings


def _keep_timings(timings: Any, cache: Path) -> None:
    with written_beside(cache) as partial:
        partial.write_bytes(bytes(timings.serialize()))
