"""`star-export ops build`: a library where it is wanted, and its path on stdout."""

from pathlib import Path

import pytest

from exporter.runtimes.onnxruntime import operator_library
from exporter.runtimes.onnxruntime.operator_library import LIBRARY
from tests.commands import Command


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The libraries that were asked for; nothing is compiled."""
    places: list[Path] = []
    monkeypatch.setattr(operator_library, "build_library", places.append)
    return places


def test_it_goes_where_runners_look(
    star_export: Command, built: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("STAR_OPS_LIBRARY", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = star_export("ops", "build")
    assert (done.code, done.err, done.out) == (0, "", f"{tmp_path}/star-export/{LIBRARY}\n")
    assert built == [tmp_path / "star-export" / LIBRARY]


def test_or_into_a_folder(star_export: Command, built: list[Path], tmp_path: Path) -> None:
    done = star_export("ops", "build", "--out", tmp_path, "--json")
    assert done.json == {"library": str(tmp_path / LIBRARY)}
    assert built == [tmp_path / LIBRARY]


def test_an_action_is_needed(star_export: Command) -> None:
    done = star_export("ops")
    assert done.code == 2
    assert "ACTION" in done.error
