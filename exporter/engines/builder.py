"""Build a TensorRT engine from an ONNX file, with TensorRT 10 or 11; write it, its manifest and its layers.

Every layer has the graph's precision: 11 always does this, 10 needs a flag. Without an execution context the
inspector states no types for tensors of dynamic sizes, and it does not list profiles apart: each profile is
inspected through a context of its own, at the profile's largest sizes.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.files import written_beside
from exporter.engines.layer_info import layers_path
from exporter.engines.manifest import EngineManifest, manifest_path
from exporter.engines.plugin_library import register_library
from exporter.engines.settings import BuildSettings
from exporter.engines.tensorrt_api import (
    error_log,
    major_version,
    member,
    started,
)

logger = logging.getLogger(__name__)

# CUDA's default stream: nothing runs on it here.
_STREAM = 0
NO_WIDTHS: Mapping[str, int] = MappingProxyType({})


def inspect_profiles(trt: Any, log: Any, plan: bytes) -> tuple[str, ...]:
    """Return the layers of each profile of a plan just built, as the inspector's JSON."""
    runtime = started(trt, "Runtime", log)
    # A version-compatible engine contains code, built here.
    runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise ArtefactError(
            "the engine just built", log.cause or "no reason", "one that loads"
        )
    form = member(trt, "LayerInformationFormat", "JSON", "the audit")
    return tuple(
        _inspect(trt, log, engine, profile, form)
        for profile in range(engine.num_optimization_profiles)
    )


def _inspect(trt: Any, log: Any, engine: Any, profile: int, form: Any) -> str:
    """Inspect one profile. The context holds the activations' memory, so only one exists at a time."""
    context = engine.create_execution_context()
    if context is None or not _at_largest(trt, engine, context, profile):
        got = log.cause or "no reason"
        raise ArtefactError(
            f"profile {profile} of the engine just built",
            got,
            "one that TensorRT can run",
        )
    inspector = engine.create_engine_inspector()
    inspector.execution_context = context
    return str(inspector.get_engine_information(form))


def _at_largest(trt: Any, engine: Any, context: Any, profile: int) -> bool:
    """Set the profile and its largest input sizes; return whether TensorRT accepts them."""
    if not context.set_optimization_profile_async(profile, _STREAM):
        return False
    names = (engine.get_tensor_name(index) for index in range(engine.num_io_tensors))
    for name in names:
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            largest = engine.get_tensor_profile_shape(name, profile)[-1]
            if not context.set_input_shape(name, largest):
                return False
    return True


def build_engine(
    trt: Any,
    onnx: Path,
    settings: BuildSettings,
    cache: Path,
    widths: Mapping[str, int] = NO_WIDTHS,
) -> tuple[bytes, tuple[str, ...]]:
    """Build an engine, which takes minutes for a large ViT; return it serialised, and its layers.

    The layers are the inspector's JSON for each profile: none where the inspection failed, for the engine may
    run. The timing cache is read if it exists, and written after the build. `widths` are the largest sizes, by
    input name, of dynamic dimensions other than the batch. The caller has checked the plugin library.
    """
    log = error_log(trt)
    trt.init_libnvinfer_plugins(log, "")
    builder = started(trt, "Builder", log)
    if settings.plugin is not None:
        register_library(builder.get_plugin_registry(), settings.plugin)
    network = builder.create_network(_strongly_typed(trt))
    parse(trt, network, log, onnx)
    config = builder.create_builder_config()
    configure(trt, config, settings)
    for batches in settings.profiles:
        config.add_optimization_profile(profile_of(builder, network, batches, widths))
    timings = _timings(config, cache)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ArtefactError(
            onnx, log.cause or "no reason", "a model that TensorRT can build"
        )
    with written_beside(cache) as partial:
        partial.write_bytes(bytes(timings.serialize()))
    content = bytes(plan)
    log.clear()
    return content, _inspected(trt, log, content)


def _strongly_typed(trt: Any) -> int:
    """Return the flag for strong typing, as a bit; 11 is always strongly typed and deprecates it."""
    if major_version(trt.__version__) > 10:
        return 0
    return 1 << int(
        member(trt, "NetworkDefinitionCreationFlag", "STRONGLY_TYPED", "the build")
    )


def _inspected(trt: Any, log: Any, plan: bytes) -> tuple[str, ...]:
    try:
        return inspect_profiles(trt, log, plan)
    except UserError as error:
        logger.warning("the engine is written without its audit: %s", error)
        return ()


def parse(trt: Any, network: Any, log: Any, onnx: Path) -> None:
    """Fill a network from an ONNX file; ArtefactError, with all that the parser says, for one that it rejects."""
    parser = trt.OnnxParser(network, log)
    # Parse the file, not its bytes: the parser then finds initializers in other files of the folder.
    if not parser.parse_from_file(str(onnx)):
        reasons = "; ".join(
            parser.get_error(index).desc() for index in range(parser.num_errors)
        )
        raise ArtefactError(
            onnx, reasons or log.cause, "a model that TensorRT's parser accepts"
        )


def configure(trt: Any, config: Any, settings: BuildSettings) -> None:
    """Apply the settings to a builder configuration."""
    # TensorRT enables TF32 by default; here it is off unless requested.
    tf32 = member(trt, "BuilderFlag", "TF32", "--tf32")
    (config.set_flag if settings.tf32 else config.clear_flag)(tf32)
    # The audit needs details; without this the inspector gives layer names only.
    config.profiling_verbosity = member(
        trt, "ProfilingVerbosity", "DETAILED", "the audit"
    )
    if settings.hardware != "none":
        level = settings.hardware.upper().replace("-", "_")
        config.hardware_compatibility_level = member(
            trt, "HardwareCompatibilityLevel", level, "--hardware"
        )
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    if settings.aux_streams is not None:
        config.max_aux_streams = settings.aux_streams
    if settings.version_compatible:
        config.set_flag(
            member(trt, "BuilderFlag", "VERSION_COMPATIBLE", "--version-compatible")
        )
    if settings.plugin is not None and settings.serialise_plugin:
        config.plugins_to_serialize = [str(settings.plugin)]


def profile_of(
    builder: Any, network: Any, batches: tuple[int, int], widths: Mapping[str, int]
) -> Any:
    """Create a profile from the least to the largest batch; kernels are optimised for the largest."""
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        sizes = tuple(tensor.shape)[1:]
        if any(size < 0 for size in sizes) and tensor.name not in widths:
            got = f"{tensor.name} of sizes {list(sizes)}"
            expected = "static sizes except for the batch"
            raise UserError(
                "engine", got, expected, 'layout = "padded" in a recipe has them'
            )
        least = (batches[0], *(1 if size < 0 else size for size in sizes))
        most = (
            batches[1],
            *(widths[tensor.name] if size < 0 else size for size in sizes),
        )
        profile.set_shape(tensor.name, least, most, most)
    return profile


def _timings(config: Any, cache: Path) -> Any:
    timings = config.create_timing_cache(cache.read_bytes() if cache.is_file() else b"")
    # A cache of another version or GPU is not an error: start with an empty one.
    if timings is None or not config.set_timing_cache(timings, False):
        timings = config.create_timing_cache(b"")
        config.set_timing_cache(timings, False)
    return timings


def save_engine(
    path: Path, plan: bytes, manifest: EngineManifest, layers: tuple[str, ...] = ()
) -> None:
    """Write an engine, its layers (the inspector's JSON for each profile) and its manifest.

    OutputError where a file cannot be written.
    """
    with written_beside(path) as partial:
        partial.write_bytes(plan)
    layers_path(path).unlink(missing_ok=True)  # of an earlier engine
    if layers:
        with written_beside(layers_path(path)) as partial:
            profiles = {"profiles": [json.loads(text) for text in layers]}
            partial.write_text(json.dumps(profiles, indent=1), encoding="utf-8")
    # The manifest is written last: an engine without its manifest is refused.
    save_json(manifest, manifest_path(path))
