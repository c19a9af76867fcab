"""`star-export plan`: the patches that each layer keeps, without weights."""

import json
from pathlib import Path

import pytest

from exporter.calibration.record import load_calibration
from exporter.formats.canonical_json import load_json
from exporter.records import Schedule
from tests.commands import Command, Workplace
from tests.schedule.ours import DEIT_B_COUNTS_AT_07
from tests.schedule.published import DEIT_B


def test_it_answers_with_the_counts_of_deit_b(
    star_export: Command, tmp_path: Path
) -> None:
    (tmp_path / "acs.json").write_text(json.dumps(DEIT_B.acs))
    flags = (
        "--model",
        "deit_base_patch16_224",
        "--rho",
        "0.7",
        "--acs",
        tmp_path / "acs.json",
    )
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
    assert (
        f"17.56 → {answer['gmacs_pruned']:.2f} GMACs ({answer['gmacs_dense']:.2f} by the last layer"
        in shown.out
    )
    merged = star_export(
        "plan", *flags, "--reduce", "merge", "--scorer", "intra", "--json"
    ).json
    assert merged["keep"] == answer["keep"]
    assert (
        answer["gmacs_pruned"] < merged["gmacs_pruned"] < 1.02 * answer["gmacs_pruned"]
    )


def test_a_calibration_gives_acs_and_names_its_scores(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    given = (
        *workplace.model,
        "--calibration",
        calibration,
        "--out",
        tmp_path / "s.json",
    )
    answer = star_export(
        "plan", *given, "--rho", "0.5", "--scorer", "fused", "--json"
    ).json
    schedule = load_json(Schedule, tmp_path / "s.json")
    made = load_calibration(calibration)
    assert list(schedule.keep) == answer["keep"]
    assert (schedule.rho, schedule.inter_sha256) == (0.5, made.inter_sha256)
    assert schedule.acs == tuple(made.acs.tolist())
