"""Save and open ONNX models of any size: what one file cannot hold has its weights in another one beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from exporter.core.base.errors import ArtefactError, reason_of
from exporter.core.base.files import written_beside
from exporter.core.base.onnx_file import load_onnx

if TYPE_CHECKING:
    from onnx import ModelProto

# The size limit of a protobuf message, less a few MB for the graph.
MOST_INSIDE = 2**31 - 2**24
# The file of the weights is named after the model's, with this ending.
DATA = ".data"
# Smaller tensors stay inside: they include shapes, which runtimes read before they open other files.
LEAST_BYTES = 1024


def load_whole(path: Path) -> "ModelProto":
    """Read an ONNX file with the weights that lie beside it. Errors as of `load_onnx`."""
    model = load_onnx(path)
    if any(map(_is_external, model.graph.initializer)):
        from onnx.checker import ValidationError  # noqa: PLC0415
        from onnx.external_data_helper import load_external_data_for_model  # noqa: PLC0415

        try:
            load_external_data_for_model(model, str(path.absolute().parent))
        except (OSError, ValueError, ValidationError) as error:
            expected = f"its weights beside it, in {data_path(path).name}"
            raise ArtefactError(path, reason_of(error), expected) from None
    return model


def save_onnx(model: "ModelProto", path: Path, ending: str = DATA) -> None:
    """Write a model: next to `path` first, then renamed. What is too large for one file has its weights in another.

    The names of both stay together: the model refers to its weights by the name of their file, in any folder.
    """
    data = data_path(path, ending)
    if not is_large(model):
        with written_beside(path) as partial:
            partial.write_bytes(model.SerializeToString(deterministic=True))
        data.unlink(missing_ok=True)  # an earlier model's
        return
    light, heavy = weights_apart(model)
    with written_beside(data) as partial, partial.open("wb") as file:
        for tensor in heavy:
            if _is_external(tensor):  # it refers to a file that there is
                light.graph.initializer.append(tensor)
                continue
            reference = _copied(tensor, "raw_data")
            refer(reference, data.name, file.tell(), len(tensor.raw_data))
            light.graph.initializer.append(reference)
            file.write(tensor.raw_data)
    with written_beside(path) as partial:
        partial.write_bytes(light.SerializeToString(deterministic=True))


def refer(tensor: Any, file: str, offset: int, length: int) -> None:
    """Let the values of a tensor be bytes of a file."""
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    place = {"location": file, "offset": str(offset), "length": str(length)}
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)


def data_path(path: Path, ending: str = DATA) -> Path:
    """Return where the weights of a large model lie."""
    return path.with_name(path.name + ending)


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files of a model: its own, and that of its weights where there is one."""
    data = data_path(path)
    return (path, data) if data.is_file() else (path,)


def bytes_of(path: Path) -> int:
    """Return the size of a model's files."""
    return sum(file.stat().st_size for file in files_of(path))


def is_large(model: "ModelProto") -> bool:
    """Whether the weights in a model are more than one file, or protobuf, can hold."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer) > MOST_INSIDE


def weights_apart(model: "ModelProto") -> tuple["ModelProto", list[Any]]:
    """Return a copy of a model without its heavy weights, and these, which are not copied."""
    light = _copied(model, "graph")
    light.graph.CopyFrom(_copied(model.graph, "initializer"))
    heavy = []
    for tensor in model.graph.initializer:
        if _is_external(tensor) or len(tensor.raw_data) >= LEAST_BYTES:
            heavy.append(tensor)
        else:
            light.graph.initializer.append(tensor)
    return light, heavy


def checkable(model: "ModelProto") -> "ModelProto":
    """Return what ONNX's checker and inference take: of a large model, the weights are inputs without values."""
    if not (is_large(model) or any(map(_is_external, model.graph.initializer))):
        return model
    from onnx.helper import make_tensor_value_info  # noqa: PLC0415

    light, heavy = weights_apart(model)
    for tensor in heavy:
        value = make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        light.graph.input.append(value)
    return light


@contextmanager
def openable(model: "ModelProto") -> Iterator[bytes | Path]:
    """Yield what a runtime opens: the bytes of a model, or of a large one a temporary file."""
    if not is_large(model):
        yield model.SerializeToString()
        return
    with TemporaryDirectory(prefix="star-export-") as folder:
        path = Path(folder) / "model.onnx"
        save_onnx(model, path)
        yield path


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == tensor.EXTERNAL)


def _copied(message: Any, without: str) -> Any:
    """Return a copy of a message without one of its fields, whose content is not read."""
    copied = type(message)()
    for field, value in message.ListFields():
        if field.name == without:
            continue
        if hasattr(value, "extend"):
            getattr(copied, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(copied, field.name).CopyFrom(value)
        else:
            setattr(copied, field.name, value)
    return copied
