"""Load an ONNX file, read its inputs and precision, rename tensors. The first file imports the onnx library."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.core.base.errors import ArtefactError, MissingDependencyError, reason_of
from exporter.core.base.files import regular
from exporter.core.base.vocabulary import Precision

if TYPE_CHECKING:
    from onnx import ModelProto

EXPECTED = "an ONNX model that star-export made"
# That of protobuf: a file of weights beyond it has them beside it.
MOST_BYTES = 2**31 - 1

# ONNX's types of weights → the precision that one weight of the type makes that of the model, the lowest first.
PRECISIONS = {
    17: Precision.FP8,
    3: Precision.INT8,
    16: Precision.BF16,
    10: Precision.FP16,
}


def load_onnx(path: Path) -> "ModelProto":
    """Read an ONNX file, without what lies in other files.

    Raises:
        ArtefactError: It cannot be read, is torn, is none, or has no UTF-8 for metadata, or a graph without nodes,
            inputs or outputs.
        MissingDependencyError: The onnx library is not installed.
    """
    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from onnx import load_model_from_string  # noqa: PLC0415
    except ImportError:
        raise MissingDependencyError("onnx", "", "pip install onnx") from None
    try:
        if (size := regular(path).stat().st_size) > MOST_BYTES:
            raise ArtefactError(
                path, f"{size} bytes", f"{EXPECTED}, of at most {MOST_BYTES}"
            )
        model = load_model_from_string(path.read_bytes())
    except DecodeError:
        raise ArtefactError(path, "no ONNX model, or a torn one", EXPECTED) from None
    except (OSError, ValueError) as error:
        raise ArtefactError(path, reason_of(error), EXPECTED) from None
    graph = model.graph
    parts = {"nodes": graph.node, "inputs": graph.input, "outputs": graph.output}
    missing = [name for name, part in parts.items() if not part]
    if missing:
        raise ArtefactError(path, f"a graph without {' and '.join(missing)}", EXPECTED)
    texts = [tensor.name for tensor in graph.input]
    for entry in model.metadata_props:
        texts += (entry.key, entry.value)
    # protobuf gives the bytes of a text that is none.
    if not all(isinstance(text, str) for text in texts):
        got = "metadata or names of inputs that are no UTF-8"
        raise ArtefactError(path, got, EXPECTED)
    return model


def inputs_of(model: "ModelProto") -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of a model's inputs by name; a dynamic size is its name, or "" without one."""
    shapes: dict[str, tuple[int | str, ...]] = {}
    for tensor in model.graph.input:
        sizes = tensor.type.tensor_type.shape.dim
        shapes[tensor.name] = tuple(
            size.dim_value if size.HasField("dim_value") else size.dim_param
            for size in sizes
        )
    return shapes


def precision_of(model: "ModelProto") -> Precision:
    """Return the lowest precision of a model's weights."""
    types = {weights.data_type for weights in model.graph.initializer}
    reduced = (precision for kind, precision in PRECISIONS.items() if kind in types)
    return next(reduced, Precision.FP32)


def rename_tensors(model: "ModelProto", names: Mapping[str, str]) -> None:
    """Give tensors of a model's graph other names, its inputs and outputs among them."""
    graph = model.graph
    for tensor in (*graph.input, *graph.output, *graph.value_info):
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
