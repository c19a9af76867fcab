"""A measurement that is known is not made again, and its time counts either way."""

from pathlib import Path

import numpy as np
import pytest

from exporter.errors import ArtefactError
from exporter.workflows.tuning.ledger import Ledger


def test_nothing_is_measured_twice(tmp_path: Path) -> None:
    calls: list[int] = []

    def measure() -> np.ndarray:
        calls.append(1)
        return np.array([3, 1, 2])

    first = Ledger(tmp_path, "model a")
    assert not first.knows("answers, x")
    assert first.answers("answers, x", measure).tolist() == [3, 1, 2]
    assert first.knows("answers, x")
    again = Ledger(tmp_path, "model a")
    assert again.answers("answers, x", measure).tolist() == [3, 1, 2]
    assert len(calls) == 1
    assert again.spent_s == first.spent_s == first.seconds("answers, x")
    again.answers("answers, x", measure)
    assert again.spent_s == first.spent_s


def test_another_model_or_name_is_another_measurement(tmp_path: Path) -> None:
    Ledger(tmp_path, "model a").record("x", lambda: 1)
    assert Ledger(tmp_path, "model b").record("x", lambda: 2) == 2
    assert Ledger(tmp_path, "model a").record("y", lambda: 3) == 3
    assert Ledger(tmp_path, "model a").record("x", lambda: 4) == 1


def test_a_failed_measurement_leaves_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "a")
    with pytest.raises(ZeroDivisionError):
        ledger.record("x", lambda: 1 / 0)
    assert not ledger.knows("x")
    assert list(tmp_path.iterdir()) == []


def test_a_torn_file_is_one_line(tmp_path: Path) -> None:
    Ledger(tmp_path, "a").record("x", lambda: 1)
    (path,) = tmp_path.iterdir()
    path.write_text("{")
    with pytest.raises(ArtefactError, match="a measurement"):
        Ledger(tmp_path, "a").record("x", lambda: 2)
