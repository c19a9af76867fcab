"""`star-export compile`: what it leaves, what it prints, and that it does the same again."""

import hashlib
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.core.base.canonical_json import to_json
from exporter.core.base.records import Pair
from exporter.core.base.tensor_names import INSTRUMENTED, instrumented_path
from exporter.core.base.vocabulary import Method
from exporter.jobs import compile as compile_module
from exporter.report.record import CalibratedOn, Report
from exporter.serve.export_folder import read_checksums
from tests.commands import BRIEF, Command, Workplace, recipe_file, report_of, succeeded
from tests.report.reports import full_report, judged, timed

SETTINGS = {"gamma": 2, "images.seed": 1, "prune.seed": 1, "calibrate.seed": 1}


@pytest.fixture
def compile_tiny(star_export: Command, workplace: Workplace, tmp_path: Path) -> Command:
    """The verb, with the smallest model, its images, and where to."""
    start = ("compile", *workplace.given, "--out", tmp_path / "out")
    return lambda *flags: star_export(*start, *flags)


@pytest.fixture
def compile_digits(star_export: Command, image_folder: Path, tmp_path: Path) -> Command:
    """The verb, with a model and images, which are looked at before whatever compiles them."""
    model = ("--model", "digits_vit", "--images", image_folder)
    start = ("compile", *model, "--out", tmp_path / "o")
    return lambda *flags: star_export(*start, *flags)


@pytest.mark.ort
@pytest.mark.parametrize("input_kind", ["float32", "uint8"])
def test_it_leaves_a_folder_that_proves_itself(
    compile_tiny: Command, star_export: Command, tmp_path: Path, input_kind: str
) -> None:
    flags = f"--method star --rho 0.5 --input-kind {input_kind} --rounds 5 --batch 2"
    recipe, out = recipe_file(tmp_path, **SETTINGS), tmp_path / "out"
    done = succeeded(compile_tiny(*recipe, *flags.split(), "--json"))
    report = done.json
    assert report == report_of(out)
    assert report["parity"]["pruned"]["passed"]
    assert report["quality"]["accuracy"]["dense"]["images"] == 12
    assert (report["model"]["name"], report["speed"]["batch"]) == (
        "vit_tiny_patch16_224",
        2,
    )
    assert (report["schedule"]["method"], report["schedule"]["rho"]) == ("star", 0.5)
    libraries = {"torch", "timm", "onnx", "onnxruntime"}
    assert libraries <= set(report["hardware"]["versions"])
    files = {path.name for path in out.rglob("*") if path.is_file()}
    pruned = Path(report["files"]["pruned"])
    assert files == {
        "calibration.safetensors",
        "schedule.json",
        "model.json",
        "reference.npz",
        "recipe.json",
        "SHA256SUMS",
        "README.txt",
        "report.json",
        "report.html",
        "try.html",
        *report["files"].values(),
        *(instrumented_path(pruned, role).name for role in INSTRUMENTED),
        "images.batch1.bin",
        "images.batch2.bin",
    }
    for line in (out / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    readme = (out / "README.txt").read_text().splitlines()
    assert {Path(line).name for line in readme} >= files
    with np.load(out / "reference.npz") as reference:
        assert reference["images"].dtype == input_kind
        assert reference["logits"].shape == (12, 2)
    page = (out / "report.html").read_text()
    for text in (
        "data:image/webp;base64,",
        "✓ Both files compute what PyTorch computes.",
        "Accuracy against images per second",
        'href="try.html"',
    ):
        assert text in page
    assert star_export("inspect", out).code == 0


@pytest.mark.ort
def test_a_folder_for_tensorrt_says_how_to_build_it_with_trtexec_alone(
    compile_tiny: Command, tmp_path: Path
) -> None:
    flags = "--rho 0.5 --rounds 0 --batch 4 --target tensorrt-fp16"
    out = tmp_path / "out"
    done = succeeded(compile_tiny(*flags.split()))
    assert f"sh trtexec.sh in {out}" in done.out and "--onnx" not in done.out
    assert "sh trtexec.sh" in (out / "report.html").read_text()
    assert "trtexec.sh" in read_checksums(out)
    script = (out / "trtexec.sh").read_text().splitlines()
    lines = [line for line in script if line.startswith("trtexec ")]
    assert len(lines) == 2 * 2
    for line in lines:
        words = dict(word.partition("=")[::2] for word in shlex.split(line))
        assert (out / words["--onnx"]).is_file()
        assert (out / words["--loadInputs"].removeprefix("images:")).is_file()
    assert not (out / "try.html").exists()  # for what a browser runs
    assert "try.html" not in (out / "report.html").read_text()


def of_the_dense_model(report: Any) -> list[Any]:
    """What a comparison measures once."""
    batches = report["speed"]["batches"]
    return [
        report["parity"]["dense"],
        report["quality"]["accuracy"]["dense"],
        [batch["throughput"]["dense"] for batch in batches],
        [batch["as_it_came"]["throughput"] for batch in batches],
        [(example["image"], example["dense"]) for example in report["examples"]],
    ]


@pytest.mark.ort
def test_several_methods_are_compared(
    compile_tiny: Command, star_export: Command, tmp_path: Path
) -> None:
    """Each has its own export folder; what is measured of the dense model, and the images, are the same."""
    out = tmp_path / "out"
    amount = "--mac-reduction 0.3 --rounds 5 --batch 2"
    flags = (*recipe_file(tmp_path, **SETTINGS), *amount.split())
    methods = ("star", "a-star", "tome")
    done = succeeded(compile_tiny(*flags, "--method", ",".join(methods), "--json"))
    assert list(done.json) == sorted(methods)
    for method, report in done.json.items():
        assert report == report_of(out / method)
        assert report["schedule"]["method"] == method
        assert report["parity"]["pruned"]["passed"]
        assert star_export("check", out / method).code == 0
        recipe = json.loads((out / method / "recipe.json").read_text())
        assert recipe["prune"]["method"] == method
    first, *others = map(of_the_dense_model, done.json.values())
    assert others == [first] * 2 and all(first)
    calibrations = [out / method / "calibration.safetensors" for method in methods[:2]]
    assert calibrations[0].read_bytes() == calibrations[1].read_bytes()
    page, *pages = (
        (place / "report.html").read_text()
        for place in (out, *(out / method for method in methods))
    )
    left = "Patches left after layer"
    assert page.count(left) == 3 * pages[0].count(left)
    assert ["Relevance of the patches" in each for each in (page, *pages)] == [
        True,
        True,
        True,
        False,
    ]
    sums = (out / "SHA256SUMS").read_text().splitlines()
    listed = {line.split("  ")[1] for line in sums}
    files = {
        path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()
    }
    assert files == listed | {"SHA256SUMS"}
    shown = compile_tiny(*flags, "--method", "tome,star", "--rounds", "0")
    assert (shown.code, (out / "a-star").exists()) == (0, False)
    lines = [line.split("│") for line in shown.out.splitlines()]
    rows = [cells[1].strip() for cells in lines if len(cells) > 1]
    assert rows == ["your model", "unpruned", "tome", "star"]
    assert shown.out.count("PASSED") == 3
    assert compile_tiny(*flags, "--rounds", "0").code == 0
    assert not (out / "star").exists() and not (out / "tome").exists()


@pytest.mark.ort
@pytest.mark.usefixtures("exported_anew")
def test_compiling_again_gives_the_same_bytes(
    compile_tiny: Command,
    calibration: Path,
    compiled: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """All but what the machine is called where it happened."""
    flags = "--rho 0.5 --scorer intra --rounds 0"
    before, again = compiled(), tmp_path / "out"
    assert compile_tiny("--calibration", calibration, *flags.split()).code == 0
    named = sorted(str(path.relative_to(before)) for path in before.rglob("*.*"))
    assert named == sorted(str(path.relative_to(again)) for path in again.rglob("*.*"))
    for name in set(named) - {"report.json", "report.html"}:
        assert (before / name).read_bytes() == (again / name).read_bytes(), name
    reports = [report_of(folder) for folder in (before, again)]
    assert {**reports[0], "hardware": None} == {**reports[1], "hardware": None}


def answer_with(
    monkeypatch: pytest.MonkeyPatch, report: Report, tome: Report | None = None
) -> None:
    """Compilations give this report, and of ToMe, where it is one of several methods, the other one."""
    both = {Method.STAR: report, Method.TOME: tome or report}
    monkeypatch.setattr(compile_module, "compile_model", lambda *_, **__: report)
    monkeypatch.setattr(compile_module, "compare_methods", lambda *_, **__: both)


def test_what_it_prints(
    compile_digits: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = timed(full_report())
    answer_with(monkeypatch, report)
    shown = succeeded(compile_digits("--rho", "0.5"))
    for text in (
        "<vit>, star, drop, ",
        "% of your model's multiply-adds saved",
        "GMACs",
        "PASSED",
        "same class",
        str(tmp_path / "o/report.html"),
    ):
        assert text in shown.out
    assert "images/s" not in shown.out
    assert compile_digits("--rho", "0.5", "--json").json == json.loads(to_json(report))


@pytest.mark.parametrize("methods", ["star", "star,tome"])
@pytest.mark.parametrize("beside", [True, False])
def test_speeds_are_over_the_unpruned_export_and_beside_it_over_the_model_as_it_came(
    compile_digits: Command,
    monkeypatch: pytest.MonkeyPatch,
    methods: str,
    beside: bool,
) -> None:
    report = full_report()
    if not beside:
        gmacs = {**report.gmacs, "as_it_came": report.gmacs["dense"]}
        batches = [replace(batch, as_it_came=None) for batch in report.speed.batches]
        report = timed(replace(report, gmacs=gmacs), *batches)
    answer_with(monkeypatch, report)
    lines = compile_digits("--rho", "0.5", "--method", methods).out.splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    rows = {name: row for name, *row in filter(None, cells)}
    assert list(rows) == [*["your model"] * beside, "unpruned", *methods.split(",")]
    assert rows["star"][3:] == ["166.7", "1.67", *["1.83"] * beside]
    assert rows["unpruned"][3:] == ["100.0", "", *["1.10"] * beside]
    if beside:
        came = ["4.250", "as unpruned", "", "90.9", "", ""]
        assert rows["your model"] == came
    told = "star, speed-up over the unpruned export on ONNX Runtime: quartiles 1.67 to 1.67"
    assert told in lines
    assert lines[0].startswith("star: 1.67 × as fast as the unpruned export")
    factors = "1.83 × your model as it came: 1.10 by the export, 1.67 by pruning."
    assert (factors in lines[0]) == beside
    assert max(len(line) for line in lines if "│" in line or "━" in line) <= 80


def test_below_fp32_losses_are_beside_the_model_as_it_came(
    compile_digits: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = full_report()
    quality = full.quality
    assert (
        quality.accuracy is not None
        and quality.pair is not None
        and quality.pair.loss_points == 33
    )
    losses = Pair(replace(quality.pair, loss_points=0.25), quality.pair)
    original = replace(quality.accuracy.dense, top1=0.91)
    report = judged(timed(full), fp32_accuracy=original, fp32_losses=losses)
    answer_with(monkeypatch, report)
    lines = compile_digits("--rho", "0.5").out.splitlines()
    rows = [
        [word.strip() for word in line.split("│")[1:-1]]
        for line in lines
        if "│" in line
    ]
    assert [row[0] for row in rows] == ["your model", "unpruned", "star"]
    assert [row[2].split(" ")[0] for row in rows] == ["91.00%", "90.00%", "85.00%"]
    assert [row[3] for row in rows] == ["", "−0.25", "−33.00"]


def test_a_model_that_is_not_its_reference_is_1(
    compile_digits: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of several methods; and images that cannot be read are named."""
    passed = full_report()
    failed = replace(
        judged(passed, skipped={"a.tar/4.png": "torn"}),
        parity=Pair(passed.parity.dense, replace(passed.parity.pruned, passed=False)),
        calibration=CalibratedOn(2, 1, None, {"b.png": "x"}),
    )
    answer_with(monkeypatch, failed)
    shown = compile_digits("--rho", "0.1")
    assert shown.code == 1
    assert "1 calibration images skipped: b.png" in shown.out
    assert "1 evaluation images skipped: a.tar/4.png" in shown.out
    for last, code in ((passed, 0), (failed, 1)):
        answer_with(monkeypatch, passed, last)
        assert compile_digits("--rho", "0.5", "--method", "star,tome").code == code


@pytest.mark.ort
def test_outputs_are_compared_by_their_kinds_and_the_embedding_between_models(
    star_export: Command, workplace: Workplace, compiled: Callable[..., Path]
) -> None:
    folder = compiled(
        "--outputs",
        "embedding,tokens,layer:-2",
        "--reduce",
        "drop",
        "--target",
        "openvino-fp32",
    )
    report = report_of(folder)
    assert [output["name"] for output in report["parity"]["pruned"]["outputs"]] == [
        "embedding",
        "tokens",
        "layer_03",
    ]
    assert report["quality"]["accuracy"] is None
    agreement = report["quality"]["agreement"]
    assert (
        agreement["images"] == 12
        and agreement["embedding_cosine"] > agreement["embedding_cosine_least"]
    )
    assert 0 <= agreement["retrieval"]["reindexed_at_1"] <= 1
    assert "both re-indexed" in (folder / "report.html").read_text()
    assert star_export("check", folder).code == 0
    flags = ("--images", workplace.images, "--threads", "1")
    pruned = folder / report["files"]["pruned"]
    assert (
        star_export(
            "check", "--onnx", pruned, *workplace.model, *flags, "--recipe", BRIEF
        ).code
        == 0
    )
    done = star_export("eval", folder, *flags, "--json")
    assert done.json["agreement"] == agreement
    assert done.json["pair"] is None
    assert "same nearest: both re-indexed: " in star_export("eval", folder, *flags).out
    assert "which has no top-1" in star_export("eval", pruned, *flags).error
    out = folder / "differing"
    assert (
        "--disagreements"
        in star_export("eval", folder, *flags, "--disagreements", out).error
    )
