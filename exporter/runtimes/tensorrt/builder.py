"""One ONNX file to one TensorRT engine, by what the loaded version has: 8.6, 10 or 11.

The precision of every layer is the graph's: 11 knows nothing else, 10 is told so, 8.6 is given fp32 alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exporter.errors import ArtefactError, UserError
from exporter.files import written_beside
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
    """A serialised engine, what its inspector says of its layers, and whether their types are the graph's."""

    plan: bytes
    layers: str
    strongly_typed: bool


def build_engine(
    trt: Any, onnx: Path, settings: BuildSettings, cache: Path, widths: Mapping[str, int] = NO_WIDTHS
) -> Engine:
    """Build; minutes for a large ViT.

    Args:
        trt: The module `tensorrt`.
        onnx: The file; initializers may lie in other files of its folder.
        settings: Batches, memory, compatibility; its plugin library has been checked.
        cache: Timings to start from, where there are any, and to leave.
        widths: The most that an input's sizes beside the batch can be, where the graph leaves them open.

    Raises:
        ArtefactError: The parser or the builder refuses the model; in TensorRT's words.
        UserError: The version lacks what was asked for.
    """
    log = error_log(trt)
    trt.init_libnvinfer_plugins(log, "")
    if settings.plugin is not None:
        trt.get_plugin_registry().load_library(str(settings.plugin))
    builder = trt.Builder(log)
    strongly = needs_strong_typing_flag(trt)
    # 8.6 must be told that a batch is a dimension; later versions know nothing else.
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
        raise ArtefactError(str(onnx), log.last or "no reason", "a model that TensorRT builds")
    _keep_timings(timings, cache)
    content = bytes(plan)
    return Engine(content, _inspect(trt, log, content), strongly or major_version(trt.__version__) > 10)


def _parse(trt: Any, network: Any, log: Any, onnx: Path) -> None:
    parser = trt.OnnxParser(network, log)
    # From the file, so that initializers in other files are found beside it.
    if not parser.parse_from_file(str(onnx)):
        reasons = "; ".join(parser.get_error(index).desc() for index in range(parser.num_errors))
        raise ArtefactError(str(onnx), reasons or log.last, "a model that TensorRT's parser takes")


def _configure(trt: Any, config: Any, settings: BuildSettings) -> None:
    if settings.workspace_mib:
        pool = member(trt, "MemoryPoolType", "WORKSPACE", "--workspace-mib")
        config.set_memory_pool_limit(pool, settings.workspace_mib * _MIB)
    # TF32 is on by default: fp32 means fp32 unless it is asked for.
    tf32 = member(trt, "BuilderFlag", "TF32", "--tf32")
    (config.set_flag if settings.tf32 else config.clear_flag)(tf32)
    # What the audit reads: without it the inspector knows names alone.
    config.profiling_verbosity = member(trt, "ProfilingVerbosity", "DETAILED", "the audit")
    if settings.hardware != "none":
        level = member(trt, "HardwareCompatibilityLevel", settings.hardware_level, "--hardware")
        config.hardware_compatibility_level = level
    if settings.version_compatible:
        config.set_flag(member(trt, "BuilderFlag", "VERSION_COMPATIBLE", "--version-compatible"))
    if settings.plugin is not None and settings.serialise_plugin:
        config.plugins_to_serialize = [str(settings.plugin)]


def _profile(builder: Any, network: Any, batches: tuple[int, int], widths: Mapping[str, int]) -> Any:
    """The least and the largest batch; kernels are chosen for the largest."""
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        sizes = tuple(tensor.shape)[1:]
        if any(size < 0 for size in sizes) and tensor.name not in widths:
            got, expected = f"{tensor.name} of sizes {list(sizes)}", "sizes that are known but for the batch"
            raise UserError("engine", got, expected, "--layout padded has them")
        least = (batches[0], *(1 if size < 0 else size for size in sizes))
        most = (batches[1], *(widths[tensor.name] if size < 0 else size for size in sizes))
        profile.set_shape(tensor.name, least, most, most)
    return profile


def _timings(config: Any, cache: Path) -> Any:
    timings = config.create_timing_cache(cache.read_bytes() if cache.is_file() else b"")
    # A cache of another version or GPU is no error: it is left out, and timed anew.
    if timings is None or not config.set_timing_cache(timings, False):
        timings = config.create_timing_cache(b"")
        config.set_timing_cache(timings, False)
    return timings


def _keep_timings(timings: Any, cache: Path) -> None:
    with written_beside(cache) as partial:
        partial.write_bytes(bytes(timings.serialize()))


def _inspect(trt: Any, log: Any, plan: bytes) -> str:
    """The layers as JSON. Host code is allowed: a version-compatible engine carries some, and it is our own."""
    runtime = trt.Runtime(log)
    runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise ArtefactError("the engine just built", log.last or "no reason", "one that loads")
    inspector = engine.create_engine_inspector()
    return str(inspector.get_engine_information(member(trt, "LayerInformationFormat", "JSON", "the audit")))
