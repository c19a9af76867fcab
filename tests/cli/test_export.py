"""`star-export export`: a model in, an ONNX file out."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from exporter.core import compiler
from exporter.core.base.targets import Target
from tests.commands import Command, Workplace, report_of, succeeded


@pytest.mark.ort
@pytest.mark.parametrize("role", ["dense", "pruned"])
def test_a_file_is_the_one_that_compile_leaves(
    star_export: Command,
    workplace: Workplace,
    compiled: Callable[..., Path],
    tmp_path: Path,
    role: str,
) -> None:
    folder, out = compiled(), tmp_path / "m.onnx"
    flags = (
        ("--dense",) if role == "dense" else ("--schedule", folder / "schedule.json")
    )
    done = succeeded(
        star_export("export", *workplace.model, *flags, "--out", out, "--json")
    )
    report = report_of(folder)
    assert done.json["file"] == str(out)
    assert done.json["method"] == {"dense": "dense", "pruned": "star"}[role]
    assert done.json["gmacs"] == pytest.approx(report["gmacs"][role])
    own, other = onnx.load(out), onnx.load(folder / report["files"][role])
    # `compile` has labelled images
    for model, names in ((own, []), (other, ["class_0", "class_1"])):
        (spec,) = (
            entry for entry in model.metadata_props if entry.key == "star_export.model"
        )
        assert json.loads(spec.value)["class_names"] == names
        model.metadata_props.remove(spec)
    assert own.SerializeToString() == other.SerializeToString()


def test_int8_goes_to_the_lowering_with_its_images(
    star_export: Command,
    workplace: Workplace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str, tuple[int, ...]]] = []

    def lower_each(_: object, targets: Sequence[Target], kind: str, images: Any) -> Any:
        asked.extend((target.name, kind, images.shape) for target in targets)
        yield onnx.ModelProto(ir_version=10)

    monkeypatch.setattr(compiler, "lower_each", lower_each)
    out = tmp_path / "m.onnx"
    images = ("--images", workplace.images, "--max-images", "3")
    kind = ("--dense", "--input-kind", "uint8", "--target", "openvino-int8")
    done = succeeded(
        star_export("export", *workplace.model, *images, *kind, "--out", out)
    )
    assert asked == [("openvino-int8", "uint8", (3, 3, 32, 32))]
    assert onnx.load(out).ir_version == 10
    assert str(out) in done.out
