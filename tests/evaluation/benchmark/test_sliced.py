"""The sliced stand-in of a pruned file, and the two cases that have none."""

import logging
import sys
from pathlib import Path

import onnx
import pytest

from exporter.artefact import read_lowered
from exporter.evaluation.benchmark.sliced import NOT_SLICED, sliced_of
from exporter.vocabulary import Method
from tests.folders import write_folder
from tests.lowering.models import lowered, star


def test_it_chooses_nothing(tmp_path: Path) -> None:
    onnx.save(lowered(star()), tmp_path / "m.onnx")
    sliced = sliced_of(read_lowered(tmp_path / "m.onnx"))
    assert sliced.model is not None
    operators = {node.op_type for node in onnx.load_model_from_string(sliced.model).graph.node}
    assert "TopK" not in operators and "Slice" in operators
    own = {node.name: node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}
    assert "TopK" in {own[name] for name in sliced.selection}


def test_no_slice_stands_for_counts_that_follow_the_image(tmp_path: Path) -> None:
    files = write_folder(tmp_path, method=Method.A_STAR)
    assert sliced_of(read_lowered(files.pruned)) == NOT_SLICED


def test_without_onnx_it_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = write_folder(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with caplog.at_level(logging.WARNING):
        assert sliced_of(read_lowered(files.pruned)) == NOT_SLICED
    assert "it needs onnx" in caplog.text
