"""What an ONNX file says of itself, read from its bytes."""

import zipfile
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.artefact import read_lowered, to_metadata
from exporter.errors import ArtefactError
from exporter.formats.npz import read_arrays
from exporter.formats.onnx_metadata import (
    read_domains,
    read_inputs,
    read_largest_int8,
    read_metadata,
    read_weight_types,
)
from exporter.targets import TARGETS, Target
from tests.folders import artefacts
from tests.tiny_onnx import linear_classifier, pruned_classifier

PLAIN = artefacts().pruned


def varint(number: int) -> bytes:
    """As protobuf writes it."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def entry(key: bytes, value: bytes) -> bytes:
    """One piece of metadata as ONNX has it."""
    body = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(value)) + value
    return b"\x72" + varint(len(body)) + body


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.text(), st.text()))
def test_metadata_is_any_text(tmp_path: Path, told: dict[str, str]) -> None:
    model = onnx.ModelProto(producer_name="é" * 200, ir_version=1 << 40)
    onnx.helper.set_model_props(model, told)
    assert read_metadata(written(tmp_path / "m.onnx", model.SerializeToString())) == told


@pytest.mark.parametrize("name", ["reversed", "in the middle"])
def test_metadata_is_found_wherever_it_stands(tmp_path: Path, name: str) -> None:
    """Protobuf's fields come in any order; unknown ones are passed over."""
    graph = linear_classifier()
    pairs = [entry(key.encode(), value.encode()) for key, value in to_metadata(PLAIN).items()]
    unknown = b"\x78\x96\x01" + b"\x99\x06" + bytes(8) + b"\x9d\x06" + bytes(4) + b"\x9a\x06\x02ab"
    content = b"".join(reversed(pairs)) + unknown + graph
    if name == "in the middle":
        content = b"".join(pairs[:3]) + graph + unknown + b"".join(pairs[3:])
    path = written(tmp_path / "m.onnx", content)
    assert read_metadata(path) == to_metadata(PLAIN)
    assert read_lowered(path).artefact == PLAIN


def test_inputs_are_read_with_their_sizes(tmp_path: Path) -> None:
    images = ("batch", 3, 4, 4)
    path = written(tmp_path / "m.onnx", pruned_classifier("forced"))
    assert read_inputs(path) == {"images": images, "keep_02": ("batch", 10), "keep_04": ("batch", 6)}
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[2].Clear()
    onnx.save(model, path)
    assert read_inputs(path)["images"] == ("batch", 3, "", 4)
    written(path, path.read_bytes()[:-3])
    with pytest.raises(ArtefactError, match="torn"):
        read_inputs(path)


def test_domains_are_those_of_the_graphs_own_nodes(tmp_path: Path) -> None:
    model = onnx.load_from_string(pruned_classifier())
    path = written(tmp_path / "m.onnx", model.SerializeToString())
    assert read_domains(path) == frozenset()
    model.graph.node.add(op_type="SelectTopK", domain="star")
    model.functions.add(name="Body", domain="other").node.add(op_type="Inner", domain="inner")
    written(path, model.SerializeToString())
    assert read_domains(path) == {"star"}
    written(path, path.read_bytes()[:-3])
    with pytest.raises(ArtefactError, match="torn"):
        read_domains(path)


@pytest.mark.parametrize("values", [[], [3, 64, -7], [3, 64, -128]], ids=str)
def test_the_largest_magnitude_of_int8_is_read(tmp_path: Path, values: list[int]) -> None:
    model = onnx.load_from_string(pruned_classifier())
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(values, np.int8), "w"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([200], np.uint8), "unsigned"))
    path = written(tmp_path / "m.onnx", model.SerializeToString())
    largest = max(map(abs, values), default=0)
    assert read_largest_int8(path) == read_largest_int8(path.read_bytes()) == largest
    written(path, path.read_bytes()[:-3])
    with pytest.raises(ArtefactError, match="torn"):
        read_largest_int8(path)
    with pytest.raises(ArtefactError, match=r"in memory.*torn"):
        read_largest_int8(path.read_bytes())


@pytest.mark.parametrize("size", [2**31, 2**40, 2**62, 2**63, 2**64 - 1, 2**69])
@pytest.mark.parametrize("head", [b"\x72", b"\x3a", b"\x72\x10\x0a"], ids=["an entry", "the graph", "a key"])
def test_a_length_beyond_the_file_takes_no_memory(tmp_path: Path, head: bytes, size: int) -> None:
    path = written(tmp_path / "m.onnx", head + varint(size) + bytes(20))
    with pytest.raises(ArtefactError):
        read_metadata(path)


def test_an_entry_that_outgrows_itself(tmp_path: Path) -> None:
    inner = b"\x0a\x03key\x12\x05value"
    good = written(tmp_path / "m.onnx", b"\x72" + varint(len(inner)) + inner)
    assert read_metadata(good) == {"key": "value"}
    for size in (len(inner) - 1, len(inner) - 6, len(inner) + 1):
        with pytest.raises(ArtefactError):
            read_metadata(written(tmp_path / "m.onnx", b"\x72" + varint(size) + inner))


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_the_types_of_weights_are_those_that_onnx_reads(tmp_path: Path, target: Target) -> None:
    metadata = to_metadata(artefacts(target).pruned)
    path = written(tmp_path / "m.onnx", pruned_classifier(metadata=metadata))
    found = {each.data_type for each in onnx.load(path).graph.initializer}
    assert read_weight_types(path) == found
    assert len(found) > 1


def test_a_graph_that_is_torn(tmp_path: Path) -> None:
    for body in (b"\x2a\x05\x10", b"\x2a\x02\x10\x80", b"\x2b"):
        with pytest.raises(ArtefactError):
            read_weight_types(written(tmp_path / "m.onnx", b"\x3a" + varint(len(body)) + body))


ARRAYS = {"images": np.arange(600, dtype=np.float32).reshape(2, 300), "names": np.array(["a", "b"])}


def test_arrays_are_read_as_they_were_saved(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", **ARRAYS)  # type: ignore[arg-type]
    read = read_arrays(tmp_path / "a.npz")
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_a_damaged_member_is_one_line(tmp_path: Path, method: int) -> None:
    np.savez(tmp_path / "plain.npz", **ARRAYS)  # type: ignore[arg-type]
    with (
        zipfile.ZipFile(tmp_path / "plain.npz") as plain,
        zipfile.ZipFile(tmp_path / "packed.npz", "w", method) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    content, refused = (tmp_path / "packed.npz").read_bytes(), 0
    for seed in range(300):
        random, damaged = Random(seed), bytearray(content)
        for _ in range(random.randint(1, 8)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        (tmp_path / "damaged.npz").write_bytes(damaged)
        try:
            read_arrays(tmp_path / "damaged.npz")
        except ValueError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1
    assert refused > 100


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut", b"\x93NUMPY", b"\x80\x04."])
def test_what_is_no_archive_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"^no zip archive$"):
        read_arrays(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="No such file"):
        read_arrays(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="a folder"):
        read_arrays(tmp_path)
    np.save(tmp_path / "bare.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"^no zip archive$"):
        read_arrays(tmp_path / "bare.npy")
