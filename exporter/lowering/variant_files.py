"""Save the instrumented variants of a shipped model next to it; they use the weights of the shipped file.

In ONNX an initializer may be an offset in another file. A variant's initializers point into the shipped model, so
no weight is written twice, no variant has weights of its own, and every runtime that opens ONNX files opens it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import onnx

from exporter.lowering.metadata import artefact_of
from exporter.lowering.pipeline import save_onnx
from exporter.lowering.variants import forced_variant, sliced_variant, tracing_variant
from exporter.targets import variant_roles
from exporter.tensor_names import FORCED, SLICED, TRACING, keep_layers, variant_path

__all__ = ["save_variants"]

# A tensor's place in a file: offset and length in bytes.
Place: TypeAlias = tuple[int, int]

MAKERS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    TRACING: tracing_variant,
    FORCED: forced_variant,
    SLICED: sliced_variant,
}

# Smaller tensors stay in the variant: they include shapes, which runtimes read before they open other files.
LEAST_BYTES = 1024


def save_variants(path: Path) -> dict[str, str]:
    """Write the variants of the model at `path`; return their file names by role, none for a dense model.

    For TensorRT, STAR has a third: `bench` measures the selection cost of engines, which are built from files.

    Raises:
        OutputError: The place cannot be written.
    """
    content = path.read_bytes()
    model = onnx.load_model_from_string(content)
    if not keep_layers(name for node in model.graph.node for name in node.output):
        return {}
    places = _places(model, content)
    names = {}
    artefact = artefact_of(model, str(path))
    for role in variant_roles(artefact.target, adaptive=artefact.schedule.adaptive):
        variant = MAKERS[role](model)
        del variant.metadata_props[:]
        variant.metadata_props.extend(model.metadata_props)
        for tensor in variant.graph.initializer:
            _point(tensor, path.name, places)
        save_onnx(variant, variant_path(path, role))
        names[role] = variant_path(path, role).name
    return names


def _places(model: onnx.ModelProto, content: bytes) -> dict[str, tuple[Place, bytes]]:
    """Find the offset of each large initializer in the file; they are in the model's order."""
    found, start = {}, 0
    for tensor in model.graph.initializer:
        size = len(tensor.raw_data)
        if size >= LEAST_BYTES:
            start = content.index(tensor.raw_data, start)
            found[tensor.name] = (start, size), tensor.raw_data
            start += size
    return found


def _point(tensor: onnx.TensorProto, file: str, places: dict[str, tuple[Place, bytes]]) -> None:
    """Replace a tensor's bytes by the place of the same bytes in the shipped file."""
    place, raw = places.get(tensor.name, ((0, 0), b""))
    if not raw or raw != tensor.raw_data:
        return
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", str(place[0])), ("length", str(place[1]))):
        tensor.external_data.add(key=key, value=value)
