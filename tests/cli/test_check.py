"""`star-export check`: a folder by its own answers, a file by the model that it was made from."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.commands import BRIEF, Command, Workplace, files_of


@pytest.mark.ort
def test_a_file_beside_the_model_that_it_was_made_from(
    star_export: Command, workplace: Workplace, compiled: Callable[..., Path]
) -> None:
    pruned = files_of(compiled()).pruned
    flags = (*workplace.given, "--onnx", pruned)
    done = star_export("check", *flags, "--json")
    assert (done.code, done.json["passed"], done.json["images"]) == (0, True, 12)
    shown = star_export("check", *flags, "--recipe", BRIEF)
    assert (shown.code, "PASSED" in shown.out) == (0, True)


@pytest.mark.ort
def test_another_models_file_fails_with_1(
    star_export: Command,
    workplace: Workplace,
    compiled: Callable[..., Path],
    tmp_path: Path,
) -> None:
    model = onnx.load(files_of(compiled()).dense)
    head = next(
        tensor
        for tensor in model.graph.initializer
        if tensor.name.endswith("head.weight")
    )
    other = 1.001 * onnx.numpy_helper.to_array(head)
    head.CopyFrom(onnx.numpy_helper.from_array(other.astype(np.float32), head.name))
    dense = tmp_path / "dense.onnx"
    onnx.save(model, dense)
    outcome = star_export(
        "check",
        *workplace.given,
        "--onnx",
        dense,
        "--json",
    )
    assert (outcome.code, outcome.json["passed"]) == (1, False)
