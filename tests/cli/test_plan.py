"""`star-export plan`: the patches that each layer keeps, without weights."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from exporter.calibration.record import load_calibration
from exporter.formats.canonical_json import load_json
from exporter.records import Schedule
from tests.commands import Command, Workplace
from tests.schedule.ours import DEIT_B_COUNTS_AT_07
from tests.schedule.published import DEIT_B

ACS = [0.1] * 6 + [0.5] * 6


@pytest.fixture
def acs(tmp_path: Path) -> Path:
    (tmp_path / "acs.json").write_text(json.dumps(ACS))
    return tmp_path / "acs.json"


def test_it_answers_with_the_counts_of_deit_b(star_export: Command, tmp_path: Path) -> None:
    (tmp_path / "acs.json").write_text(json.dumps(DEIT_B.acs))
    flags = ("--model", "deit_base_patch16_224", "--rho", "0.7", "--acs", tmp_path / "acs.json")
    answer = star_export("plan", *flags, "--reduce", "drop", "--json").json
    # Nobody reads the patches behind the last attention: what the paper drops there stays, uncomputed.
    assert tuple(answer["keep"]) == (*DEIT_B_COUNTS_AT_07[:-1], DEIT_B_COUNTS_AT_07[-2])
    assert len(answer["rates"]) == 12
    assert answer["gmacs_as_it_came"] == pytest.approx(17.564, abs=1e-3)
    # Two projections of five products, and the MLP, of one token in place of 197.
    last = 196 * (2 * 768**2 + 2 * 197 * 768 + 8 * 768**2) / 1e9
    assert answer["gmacs_dense"] == pytest.approx(17.564 - last, abs=1e-3)
    assert answer["gmacs_pruned"] < 9.28
    shown = star_export("plan", *flags, "--reduce", "drop")
    assert shown.code == 0
    assert f"{answer['gmacs_dense']:.2f} → {answer['gmacs_pruned']:.2f} GMACs (17.56 as it came" in shown.out
    merged = star_export("plan", *flags, "--reduce", "merge", "--scorer", "intra", "--json").json
    assert merged["keep"] == answer["keep"]
    assert answer["gmacs_pruned"] < merged["gmacs_pruned"] < 1.02 * answer["gmacs_pruned"]


def test_it_solves_for_a_share_of_macs(star_export: Command, tmp_path: Path) -> None:
    (tmp_path / "acs.json").write_text(json.dumps(DEIT_B.acs))
    flags = (
        "--model",
        "deit_base_patch16_224",
        "--mac-reduction",
        "0.4",
        "--acs",
        tmp_path / "acs.json",
        "--json",
    )
    answer = star_export("plan", *flags).json
    assert 0.595 < answer["gmacs_pruned"] / answer["gmacs_dense"] <= 0.6


def test_it_takes_rates_by_layer(star_export: Command) -> None:
    answer = star_export(
        "plan", "--model", "deit_base_patch16_224", "--rates", "4=0.7", "7=0.49", "--json"
    ).json
    assert answer["keep"] == [196] * 3 + [138] * 3 + [68] * 6


def test_tome_needs_no_acs(star_export: Command, tmp_path: Path) -> None:
    flags = ("--model", "digits_vit", "--method", "tome")
    answer = star_export("plan", *flags, "--rho", "0.3", "--out", tmp_path / "s.json", "--json").json
    steps = [before - after for before, after in pairwise([196, *answer["keep"]])]
    assert answer["keep"][-1] == 23  # r = 0.7 · 196 / (0.7 · 12 + 0.3), and none in the last layer
    assert set(steps[:-1]) == {15, 16}
    assert steps[-1] == 0
    schedule = load_json(Schedule, tmp_path / "s.json")
    assert (schedule.method, schedule.scorer, schedule.reduce) == ("tome", "pairs", "merge-weighted")
    solved = star_export("plan", *flags, "--mac-reduction", "0.3", "--json").json
    assert 0.69 < solved["gmacs_pruned"] / solved["gmacs_dense"] <= 0.7


def test_a_calibration_gives_acs_and_names_its_scores(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    given = (*workplace.model, "--calibration", calibration, "--out", tmp_path / "s.json")
    answer = star_export("plan", *given, "--rho", "0.5", "--scorer", "fused", "--json").json
    schedule = load_json(Schedule, tmp_path / "s.json")
    made = load_calibration(calibration)
    assert list(schedule.keep) == answer["keep"]
    assert (schedule.rho, schedule.inter_sha256) == (0.5, made.inter_sha256)
    assert schedule.acs == tuple(made.acs.tolist())


def test_one_source_of_acs_where_rates_follow_it(star_export: Command, acs: Path, tmp_path: Path) -> None:
    model = ("--model", "deit_small_patch16_224", "--out", tmp_path / "s.json")
    both = ("--rho", "0.7", "--acs", acs, "--calibration", "c.safetensors")
    for flags in (("--rho", "0.7", "--method", "star"), both, ("--rates", "4=0.7", "--acs", acs)):
        done = star_export("plan", *model, *flags)
        assert done.code == 2
        assert "--calibration" in done.error
    assert not (tmp_path / "s.json").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[0.1, 0.2]", "2 values"),
        (json.dumps([*ACS[:-1], float("nan")]), "layer 12"),
    ],
)
def test_acs_that_is_none(star_export: Command, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "acs.json").write_text(content)
    done = star_export(
        "plan", "--model", "deit_small_patch16_224", "--rho", "0.7", "--acs", tmp_path / "acs.json"
    )
    assert done.code == 2
    assert message in done.error
