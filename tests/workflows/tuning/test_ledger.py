"""A measurement that is known is not made again, and its time counts either way."""

from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ArtefactError
from exporter.workflows.tuning import ledger
from exporter.workflows.tuning.ledger import Ledger


def test_nothing_is_measured_twice(tmp_path: Path) -> None:
    calls: list[int] = []

    def measure() -> list[int]:
        calls.append(1)
        return [3, 1, 2]

    first = Ledger(tmp_path, "model a")
    assert not first.knows("answers, x")
    assert first.record("answers, x", measure) == [3, 1, 2]
    assert first.knows("answers, x")
    again = Ledger(tmp_path, "model a")
    assert again.record("answers, x", measure) == [3, 1, 2]
    assert len(calls) == 1
    assert again.spent_s == first.spent_s > 0
    again.record("answers, x", measure)
    assert again.spent_s == first.spent_s


@pytest.mark.parametrize(
    ("main", "together", "measured"), [(True, False, 1), (False, False, 0), (False, True, 1)]
)
def test_the_main_process_measures_what_is_not_done_together(
    main: bool, together: bool, measured: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crew:
        def __init__(self) -> None:
            self.main, self.asked = main, 0

        def of_main(self, item: Any) -> Any:
            """The main process knows nothing when it is asked first, and then says what was measured."""
            self.asked += 1
            return None if self.asked == 1 else {"value": 7, "seconds": 2.0}

    crew = Crew()
    monkeypatch.setattr(ledger, "processes", lambda: crew)
    calls: list[int] = []
    kept = Ledger(tmp_path, "a")
    assert kept.record("x", lambda: calls.append(1), together=together) == 7
    assert (len(calls), kept.spent_s) == (measured, 2.0)
    assert kept.knows("x") == main


def test_another_model_or_name_is_another_measurement(tmp_path: Path) -> None:
    Ledger(tmp_path, "model a").record("x", lambda: 1)
    assert Ledger(tmp_path, "model b").record("x", lambda: 2) == 2
    assert Ledger(tmp_path, "model a").record("y", lambda: 3) == 3
    assert Ledger(tmp_path, "model a").record("x", lambda: 4) == 1


def test_a_failed_measurement_leaves_nothing(tmp_path: Path) -> None:
    kept = Ledger(tmp_path, "a")
    with pytest.raises(ZeroDivisionError):
        kept.record("x", lambda: 1 / 0)
    assert not kept.knows("x")
    assert list(tmp_path.iterdir()) == []


def test_a_torn_file_is_one_line(tmp_path: Path) -> None:
    Ledger(tmp_path, "a").record("x", lambda: 1)
    (path,) = tmp_path.iterdir()
    path.write_text("{")
    with pytest.raises(ArtefactError, match="a measurement"):
        Ledger(tmp_path, "a").record("x", lambda: 2)
