"""An ONNX file is loaded, or refused in one line; what is read of its inputs and weights."""

from pathlib import Path
from random import Random

import onnx
import pytest

from exporter.core.base.errors import ArtefactError
from exporter.core.base.onnx_file import inputs_of, load_onnx
from tests.tiny_onnx import pruned_classifier

CONTENT = pruned_classifier(metadata={"a": "é" * 20, "b": "{}"})


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_model_is_loaded_as_it_is(tmp_path: Path) -> None:
    model = load_onnx(written(tmp_path / "m.onnx", CONTENT))
    assert model == onnx.load_model_from_string(CONTENT)


@pytest.mark.parametrize(
    ("content", "says"),
    {
        b"": "a graph without nodes and inputs and outputs",
        b"text": "torn",
        CONTENT[:-3]: "torn",
        b"\x3a\x03\x2a\x05\x10": "torn",
        CONTENT.replace("é".encode(), b"\xe9\xe9"): "no UTF-8",
    }.items(),
    ids=["empty", "text", "cut", "a weight that outgrows its graph", "Latin 1"],
)
def test_what_is_no_model_is_one_line(
    tmp_path: Path, content: bytes, says: str
) -> None:
    with pytest.raises(
        ArtefactError, match=rf"m\.onnx \| got .*{says}.* need an ONNX model"
    ):
        load_onnx(written(tmp_path / "m.onnx", content))


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    for path, says in (
        (tmp_path, "a folder"),
        (tmp_path / "none.onnx", "No such file"),
    ):
        with pytest.raises(ArtefactError, match=says):
            load_onnx(path)


def test_a_file_beyond_protobuf_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: it takes no room
    with pytest.raises(ArtefactError, match=f"got {2**40} bytes"):
        load_onnx(path)


def test_a_damaged_file_is_read_or_refused(tmp_path: Path) -> None:
    refused = 0
    for seed in range(300):
        random, damaged = Random(seed), bytearray(CONTENT)
        for _ in range(random.randint(1, 8)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        try:
            model = load_onnx(written(tmp_path / "m.onnx", bytes(damaged)))
        except ArtefactError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1
        else:
            assert inputs_of(model)
    assert 0 < refused < 300


def test_inputs_have_their_sizes() -> None:
    images = ("batch", 3, 4, 4)
    model = onnx.load_model_from_string(pruned_classifier("forced"))
    assert inputs_of(model) == {
        "images": images,
        "keep_02": ("batch", 10),
        "keep_04": ("batch", 6),
    }
    model.graph.input[0].type.tensor_type.shape.dim[2].Clear()
    assert inputs_of(model)["images"] == ("batch", 3, "", 4)
