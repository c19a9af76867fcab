"""Write an engine with its manifest and its layers."""

import json
from pathlib import Path

from exporter.files import sha256_of, written_beside
from exporter.formats.canonical_json import save_json
from exporter.runtimes.tensorrt.builder import Engine
from exporter.runtimes.tensorrt.layer_info import layers_path
from exporter.runtimes.tensorrt.manifest import Built, EngineManifest, manifest_path
from exporter.runtimes.tensorrt.settings import BuildSettings

__all__ = ["save_engine"]


def save_engine(
    engine: Engine,
    path: Path,
    onnx: Path,
    settings: BuildSettings,
    here: Built,
    *,
    schedule_sha256: str = "",
) -> EngineManifest:
    """Write an engine, its layers and its manifest, and return the manifest.

    Args:
        engine: The result of `build_engine`.
        path: The engine file to write.
        onnx: The ONNX file that it was built from.
        settings: The settings that it was built with.
        here: This machine.
        schedule_sha256: Checksum of the model's schedule; "" for a model without one.

    Raises:
        OutputError: A file cannot be written.
    """
    with written_beside(path) as partial:
        partial.write_bytes(engine.plan)
    manifest = EngineManifest(
        engine_sha256=sha256_of(path),
        onnx=onnx.name,
        onnx_sha256=sha256_of(onnx),
        schedule_sha256=schedule_sha256,
        plugin_sha256="" if settings.plugin is None else sha256_of(settings.plugin),
        plugin_serialised=settings.plugin is not None and settings.serialise_plugin,
        batches=settings.batches,
        any_batch=settings.any_batch,
        workspace_mib=settings.workspace_mib,
        tf32=settings.tf32,
        hardware=settings.hardware_level,
        version_compatible=settings.version_compatible,
        strongly_typed=engine.strongly_typed,
        built=here,
        optimization_level=settings.optimization_level,
        aux_streams=settings.aux_streams,
    )
    with written_beside(layers_path(path)) as partial:
        layers = {"profiles": [json.loads(each) for each in engine.layers]}
        partial.write_text(json.dumps(layers, indent=1), encoding="utf-8")
    # The manifest is written last: an engine without its manifest is refused.
    save_json(manifest, manifest_path(path))
    return manifest
