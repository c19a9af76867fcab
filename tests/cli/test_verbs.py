"""Each verb, file in and file out, and all of them in one."""

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from exporter.tensor_names import VARIANTS, variant_path
from tests.commands import Command, Workplace
from tests.schedule.published import DEIT_B_ACS, DEIT_B_COUNTS_AT_07

SETTINGS = ["--gamma", "2", "--seed", "1"]


def test_plan_answers_with_the_published_counts(star_export: Command, tmp_path: Path) -> None:
    (tmp_path / "acs.json").write_text(json.dumps(DEIT_B_ACS))
    flags = ("--model", "deit_base_patch16_224", "--rho", "0.7", "--acs", tmp_path / "acs.json")
    answer = star_export("plan", *flags, "--json").json
    assert tuple(answer["keep"]) == DEIT_B_COUNTS_AT_07
    assert len(answer["rates"]) == 12
    assert answer["gmacs_dense"] == pytest.approx(17.564, abs=1e-3)
    assert answer["gmacs_pruned"] == pytest.approx(9.28, abs=0.005)
    shown = star_export("plan", *flags)
    assert shown.code == 0
    assert "17.56 → 9.28" in shown.out


def test_plan_solves_for_a_share_of_macs(star_export: Command, tmp_path: Path) -> None:
    (tmp_path / "acs.json").write_text(json.dumps(DEIT_B_ACS))
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


def test_plan_takes_rates_by_layer(star_export: Command) -> None:
    answer = star_export(
        "plan", "--model", "deit_base_patch16_224", "--rates", "4=0.7", "7=0.49", "--json"
    ).json
    assert answer["keep"] == [196] * 3 + [138] * 3 + [68] * 6


@pytest.mark.ort
def test_the_verbs_one_after_the_other(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    calibration, schedule, pruned = (tmp_path / name for name in ("c.safetensors", "s.json", "p.onnx"))
    flags = (*workplace.model, *SETTINGS, "--images", workplace.images)
    done = star_export("calibrate", *flags, "--out", calibration, "--json")
    assert done.code == 0
    assert len(done.json["acs"]) == 4
    plan = star_export(
        "plan", *workplace.model, "--rho", "0.5", "--calibration", calibration, "--out", schedule, "--json"
    )
    assert plan.json["keep"][-1] < 16
    arguments = (*workplace.model, "--schedule", schedule, "--calibration", calibration, "--out", pruned)
    assert star_export("export", *arguments, "--json").json["method"] == "star"
    check = (*workplace.model, "--calibration", calibration, "--images", workplace.images, "--onnx", pruned)
    outcome = star_export("check", *check, "--json")
    assert (outcome.code, outcome.json["passed"], outcome.json["images"]) == (0, True, 12)
    assert "PASSED" in star_export("check", *check).out
    for artefact, kind in ((calibration, "calibration"), (schedule, "schedule"), (pruned, "ONNX model")):
        assert star_export("inspect", artefact, "--json").json["kind"] == kind


@pytest.mark.ort
def test_check_fails_with_1_when_the_model_is_another(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    dense = tmp_path / "dense.onnx"
    assert star_export("export", *workplace.model, "--dense", "--out", dense).code == 0
    model = onnx.load(dense)
    head = next(tensor for tensor in model.graph.initializer if tensor.name.endswith("head.weight"))
    other = 1.001 * onnx.numpy_helper.to_array(head)
    head.CopyFrom(onnx.numpy_helper.from_array(other.astype(np.float32), head.name))
    onnx.save(model, dense)
    outcome = star_export("check", *workplace.model, "--images", workplace.images, "--onnx", dense, "--json")
    assert (outcome.code, outcome.json["passed"]) == (1, False)


@pytest.mark.ort
@pytest.mark.parametrize("input_kind", ["float32", "uint8"])
def test_compile_leaves_a_folder_that_proves_itself(
    star_export: Command, workplace: Workplace, tmp_path: Path, input_kind: str
) -> None:
    flags = (
        *workplace.model,
        *SETTINGS,
        "--images",
        workplace.images,
        "--rho",
        "0.5",
        "--input",
        input_kind,
    )
    done = star_export(
        "compile", *flags, "--rounds", "5", "--batch", "2", "--out", tmp_path / "out", "--json"
    )
    assert done.code == 0, done.err
    report = done.json
    assert report == json.loads((tmp_path / "out/report.json").read_text())
    assert report["parity"]["passed"]
    assert report["parity"]["top1_agreement"] == 1.0
    assert report["gmacs"]["pruned"] < report["gmacs"]["dense"]
    assert 0 <= report["accuracy"]["pruned"]["top1"] <= 1
    assert report["accuracy"]["dense"]["images"] == 12
    assert report["throughput"]["pruned"]["images_per_s"] > 0
    assert report["efficiency"] == pytest.approx(
        report["speedup"] * report["gmacs"]["pruned"] / report["gmacs"]["dense"]
    )
    assert (report["model"], report["method"], report["rho"], report["batch"]) == (
        "vit_tiny_patch16_224",
        "star",
        0.5,
        2,
    )
    assert {"torch", "timm", "onnx", "onnxruntime"} <= set(report["versions"])
    files = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    variants = [variant_path(Path(report["files"]["pruned"]), role).name for role in VARIANTS]
    assert files == {
        *("calibration.safetensors", "schedule.json", "model.json", "reference.npz", "recipe.json"),
        *("SHA256SUMS", "report.json", "report.html", *report["files"].values(), *variants),
        *("images.batch1.bin", "images.batch2.bin"),
    }
    for line in (tmp_path / "out/SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest() == digest
    with np.load(tmp_path / "out/reference.npz") as reference:
        assert reference["images"].dtype == input_kind
        assert reference["logits"].shape == (12, 2)
    page = (tmp_path / "out/report.html").read_text()
    assert "data:image/png;base64," in page
    assert "PASSED" in page
    assert star_export("inspect", tmp_path / "out").code == 0


@pytest.mark.ort
def test_compiling_a_star_for_a_mean_of_macs(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    flags = (*workplace.model, *SETTINGS, "--images", workplace.images, "--mac-reduction", "0.3")
    done = star_export(
        "compile",
        *(*flags, "--method", "a-star"),
        *("--rounds", "5", "--batch", "4", "--out", tmp_path / "out", "--json"),
    )
    assert done.code == 0, done.err
    report = done.json
    assert report["parity"]["passed"]
    use, gmacs = report["use"], report["gmacs"]
    assert (use["layout"], use["batch"], use["images"]) == ("packed", 4, 12)
    assert use["useful_macs"] / 1e9 == pytest.approx(gmacs["pruned"])
    assert use["useful_macs"] <= use["executed_macs"] < gmacs["dense"] * 1e9
    assert gmacs["pruned"] == pytest.approx(0.7 * gmacs["dense"], rel=0.05)
    assert all(layer["least"] <= layer["median"] <= layer["most"] <= layer["star"] for layer in use["layers"])
    assert report["efficiency"] == pytest.approx(report["speedup"] * gmacs["pruned"] / gmacs["dense"])
    page = (tmp_path / "out/report.html").read_text()
    assert "Patches kept per image" in page
    described = star_export("inspect", tmp_path / "out" / report["files"]["pruned"], "--json").json
    assert (described["method"], described["layout"]) == ("a-star", "packed")
    bench = star_export("bench", tmp_path / "out", "--batches", "2", "--rounds", "5", "--json").json
    assert bench["macs"]["pruned"] == use["useful_macs"]
    assert bench["batches"][0]["selection"] is None
    images = ("--images", workplace.images, "--calibration", tmp_path / "out/calibration.safetensors")
    pruned = tmp_path / "out" / report["files"]["pruned"]
    assert star_export("check", *workplace.model, *images, "--onnx", pruned).code == 0


@pytest.mark.ort
def test_compiling_twice_gives_the_same_bytes(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    flags = (*workplace.model, *SETTINGS, "--images", workplace.images, "--rho", "0.5", "--rounds", "0")
    for name in ("a", "b"):
        assert star_export("compile", *flags, "--out", tmp_path / name).code == 0
    for path in (tmp_path / "a").rglob("*.*"):
        other = tmp_path / "b" / path.relative_to(tmp_path / "a")
        assert path.read_bytes() == other.read_bytes(), path.name


@pytest.mark.ort
def test_a_recipe_and_flags_over_it(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    kwargs = ", ".join(f"{text.replace('=', ' = ')}" for text in map(str, workplace.model[5:]))
    recipe = f'checkpoint = "{workplace.checkpoint}"\nimages = "{workplace.images}"\n'
    recipe += 'model = "vit_tiny_patch16_224"\n'
    recipe += f"model_kwargs = {{{kwargs}}}\nrho = 0.9\nscorer = 'intra'\nrounds = 0\n"
    (tmp_path / "r.toml").write_text(recipe)
    done = star_export(
        "compile", "--recipe", tmp_path / "r.toml", "--rho", "0.6", "--out", tmp_path / "o", "--json"
    )
    assert done.code == 0, done.err
    assert (done.json["rho"], done.json["schedule"]["scorer"]) == (0.6, "intra")
    assert done.json["throughput"] is None
