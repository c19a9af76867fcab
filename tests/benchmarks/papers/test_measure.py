"""A number is kept for the conditions of its measurement."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.papers.quick import DEIT_B, TUNING
from tests.benchmarks.scripts import script

measure, place_module = script("papers/measure.py"), script("papers/place.py")
Way = script("papers/tables.py").Way


@pytest.mark.parametrize(
    ("name", "value"),
    [("versions", lambda _: {"torch": "3"}), ("environment", None)],
    ids=["versions", "machine"],
)
def test_a_number_is_measured_again_on_another_machine(
    name: str, value: Any, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def counted(row: object) -> dict[str, float]:
        calls.append(row)
        return {"img/s": 1.0}

    def measured() -> None:
        lab = measure.Lab(replace(place, out=tmp_path), TUNING)
        assert lab.measured(DEIT_B, Way(), counted) == {"img/s": 1.0}

    measured()
    measured()
    assert len(calls) == 1
    other = replace(place_module.environment(), cpu_model="another")
    monkeypatch.setattr(place_module, name, value or (lambda: other))
    measured()
    assert len(calls) == 2
