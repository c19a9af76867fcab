"""`star-export inspect`: every file of ours says what it is."""

from collections.abc import Callable
from pathlib import Path

import pytest

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
    """As JSON, and in a line for each key."""
    described = star_export("inspect", path, "--json")
    assert (described.code, described.json["kind"]) == (0, kind)
    shown = star_export("inspect", path)
    assert (shown.code, shown.err) == (0, "")
    lines = dict(line.split(": ", 1) for line in shown.out.splitlines())
    assert lines["kind"] == kind
    assert set(lines) == set(described.json)
