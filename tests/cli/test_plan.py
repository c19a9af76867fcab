"""`star-export plan`: the patches that each layer keeps, without weights."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.calibration.record import load_calibration, save_calibration
from exporter.core.base.canonical_json import load_json
from exporter.core.base.records import Schedule
from exporter.models import listed as listed_module
from exporter.models.listed import model_list
from tests.calibration.samples import acs_of
from tests.commands import Command, Workplace, succeeded
from tests.core.schedule.published import DEIT_B, DEIT_B_COUNTS_AT_07
from tests.versions import LISTED


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
    shown = succeeded(star_export("plan", *flags, "--reduce", "drop"))
    assert (
        f"17.564 → {answer['gmacs_pruned']:.3f} GMACs ({answer['gmacs_dense']:.3f} by the last layer"
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


# What takes seconds to import, or is not on a deployment machine.
LIBRARIES = ("torch", "torchvision", "timm", "onnx", "onnxruntime", "PIL")
WITHOUT = """
import sys
sys.modules |= dict.fromkeys({libraries})  # importing one of them fails
from exporter.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@LISTED
@pytest.mark.parametrize(
    "flags",
    [
        ("--model", "deit_small_patch16_224", "--mac-reduction", "0.4"),
        ("--model", "lvvit_s", "--rates", "4=0.7", "7=0.49", "--method", "star"),
        ("--model", "digits_vit", "--rho", "0.5", "--calibration", "made"),
    ],
    ids=lambda flags: flags[1],
)
def test_a_listed_name_needs_no_model_library(
    star_export: Command,
    flags: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It plans as where the model is built."""
    monkeypatch.chdir(tmp_path)
    spec = model_list().accepted["digits_vit"]
    acs = [layer / spec.depth for layer in range(spec.depth)]
    save_calibration(acs_of(spec, acs), tmp_path / "made")
    command = ("plan", *flags, "--json")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(libraries=LIBRARIES), *command],
        capture_output=True,
        text=True,
        check=True,
    )
    monkeypatch.setattr(listed_module, "version", lambda _: "0.4.12")
    assert json.loads(done.stdout) == star_export(*command).json
