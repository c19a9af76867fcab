"""`star-export depth joint`: what it prints, and what it refuses; test_depth_page.py runs it after `collect`."""

from pathlib import Path

import pytest

from tests.commands import Command, Workplace
from tests.workflows.depth.collection import collection


@pytest.fixture
def words(workplace: Workplace, tmp_path: Path) -> list[object]:
    _, folder = collection(workplace)
    return ["depth", "joint", "--collected", folder, *workplace.model, "--out", tmp_path / "joint"]


def test_the_pair_is_printed_above_the_others_of_its_cost(star_export: Command, words: list[object]) -> None:
    told = star_export(*words, "--mac-reduction", "0.3", "--json").json
    assert told["predictor"]["degree"] == 1 and len(told["candidates"]) > 2
    shown = star_export(*words, "--mac-reduction", "0.3")
    assert shown.code == 0, shown.err
    best = told["best"]
    assert f"best: {best['attention']} attention layers, {best['activation']} activations" in shown.out
    rhos = [shown.out.index(f"{each['rho']:.3f}") for each in told["candidates"]]
    assert rhos == sorted(rhos)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "either mac_reduction or max_ms"),
        (("--mac-reduction", "0.5", "--max-ms", "3"), "either mac_reduction or max_ms"),
        (("--mac-reduction", "0.99"), "as far as the samples go"),
        (("--max-ms", "-1"), "a number above 0"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    star_export: Command, words: list[object], flags: tuple[str, ...], message: str
) -> None:
    done = star_export(*words, *flags)
    assert done.code == 2
    assert message in done.error


def test_another_folder_is_refused(star_export: Command, words: list[object], tmp_path: Path) -> None:
    words[3] = tmp_path
    done = star_export(*words, "--mac-reduction", "0.3")
    assert done.code == 2
    assert "scoring.json | got no such file | need the folder of depth collect with --rhos" in done.error
