"""`star-export inspect`: every file of ours says what it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.cli.inspect import _text
from tests.commands import Command


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", "report"),
        ("report.json", "report"),
        ("schedule.json", "schedule"),
        ("recipe.json", "recipe"),
        ("reference.npz", "reference"),
        ("*.star.onnxruntime-fp32.onnx", "ONNX model"),
    ],
)
def test_what_a_compilation_leaves(
    star_export: Command, compiled: Callable[..., Path], name: str, kind: str
) -> None:
    folder = compiled()
    says_what_it_is(star_export, next(folder.glob(name)) if name else folder, kind)


def test_a_calibration(star_export: Command, calibration: Path) -> None:
    says_what_it_is(star_export, calibration, "calibration")


def says_what_it_is(star_export: Command, path: Path, kind: str) -> None:
    """As JSON; for people in a line for each key, of a report as `compile` printed it."""
    described = star_export("inspect", path, "--json")
    assert (described.code, described.json["kind"]) == (0, kind)
    shown = star_export("inspect", path)
    assert (shown.code, shown.err) == (0, "")
    assert "{" not in shown.out
    lines = shown.out.splitlines()
    if kind == "report":
        assert "GMACs" in shown.out and lines[0].endswith(".")
        assert (
            lines[-1]
            == f"full report: {Path(described.json['path']).parent / 'report.html'}"
        )
        return
    assert f"kind: {kind}" in lines
    names = {line.partition(":")[0] for line in lines if line[0] != " "}
    assert names == {key.replace("_", " ") for key in described.json}


def test_values_with_commas_are_told_apart() -> None:
    assert _text(["deer", "dog, hound"]) == "deer; dog, hound"
    assert _text(["deer", "dog"]) == "deer, dog"
