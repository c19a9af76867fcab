"""The whole way for a model in memory: the stages in their order, and a folder that its own check accepts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.core.base.artefact import read_lowered
from exporter.core.base.progress import CallbackStages
from exporter.core.base.targets import OPENVINO_BF16
from exporter.core.vit.protocol import PrunableViT
from exporter.engines.choice import RunSettings
from exporter.jobs.compile import compile_model
from exporter.jobs.eval_models import models_at
from exporter.jobs.evaluate import evaluate_models
from exporter.jobs.recipe import Recipe
from exporter.report import words
from exporter.serve.check import check_folder
from exporter.serve.export_folder import read_checksums
from tests.commands import recipe_with, report_of
from tests.folders import write_folder
from tests.vits import make_images, make_vit


@pytest.fixture
def recipe(image_folder: Path) -> Recipe:
    """By ACS alone, on few images, without times."""
    return recipe_with(
        images=image_folder, rho=0.5, scorer="intra", rounds=0, threads=1
    )


@pytest.mark.ort
def test_a_model_in_memory(
    tiny_vit: PrunableViT, recipe: Recipe, tmp_path: Path
) -> None:
    """Into the folder of an earlier compilation, of another target."""
    out = tmp_path / "out"
    write_folder(out, OPENVINO_BF16)
    (out / "notes.txt").write_text("mine")
    stages: dict[str, int] = {}
    shown = CallbackStages(lambda *told: stages.update([told[:2]]))
    report = compile_model(recipe, out, tiny_vit, shown)
    assert list(stages) == [
        "calibration",
        "export, dense",
        "export, star",
        "answers of PyTorch",
        "parity, dense",
        "parity, star",
        "agreement of classes",
        "report",
    ]
    assert report.passed
    assert repr(report).startswith("<Report tiny, star, onnxruntime-fp32: ")
    assert repr(report).endswith("GMACs, parity passed>")
    assert (report.speed.at, report.quality.accuracy) == (None, None)
    assert (report.schedule.method, report.schedule.rho) == ("star", 0.5)
    assert report.calibration is not None and report.calibration.images == 6
    assert len(report.examples) == 6 and report.quality.pair is not None
    sizes = {role: (out / name).stat().st_size for role, name in report.files.items()}
    assert report.file_bytes == sizes
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 6 and 'class="script"' in page
    assert report_of(out)["files"] == report.files
    assert check_folder(out, RunSettings(threads=1)).passed
    files = {path for path in out.rglob("*") if path.is_file()}
    listed = read_checksums(out)
    assert files == {out / name for name in (*listed, "SHA256SUMS", "notes.txt")}


@pytest.mark.ort
def test_a_model_without_class_names_gets_those_of_the_images(
    recipe: Recipe,
    image_folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    vit, names = make_vit(num_classes=2), ("class_0", "class_1")
    report = compile_model(recipe, tmp_path / "out", vit)
    assert report.model.class_names == names and vit.spec.class_names == ()
    for name in report.files.values():
        assert read_lowered(tmp_path / "out" / name).spec.class_names == names
    decided = (
        "the order of the folders decides, 'class_0' is class 0, 'class_1' is class 1"
    )
    assert f"{image_folder}: the model has no class names: {decided}" in caplog.text
    assert report.model.sources.class_names == "the classes of the images"


@pytest.mark.ort
def test_class_names_reach_the_deployment_machine(
    tiny_vit: PrunableViT,
    recipe: Recipe,
    image_folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The report, model.json and each file have them, and `eval` of the folder goes by them."""
    names = ("a", "class_1", "b", "class_0", "c", "d", "e")
    tiny_vit.spec = replace(tiny_vit.spec, class_names=names)
    report = compile_model(recipe, tmp_path / "out", tiny_vit)
    assert report.model.class_names == names and report.quality.accuracy is not None
    assert f"{image_folder}: images of 2 of the model's 7 classes" in caplog.text
    assert json.loads((tmp_path / "out/model.json").read_text())["class_names"] == list(
        names
    )
    for name in report.files.values():
        assert read_lowered(tmp_path / "out" / name).spec.class_names == names
    result, _ = evaluate_models(
        models_at([tmp_path / "out"], RunSettings()), image_folder
    )
    assert result.models["dense"].accuracy == report.quality.accuracy.dense


@pytest.mark.ort
def test_why_there_is_no_accuracy_is_said(
    tiny_vit: PrunableViT,
    recipe: Recipe,
    image_folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert compile_model(recipe, tmp_path / "out", tiny_vit).quality.accuracy is None
    expected = (
        f"{image_folder}: 2 class folders ('class_0', 'class_1'), and the model has 7 classes: accuracy is not "
        "measured (--class-map FILE gives their indices)"
    )
    assert [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("exporter")
    ] == [expected]


@pytest.mark.ort
def test_a_refitted_model(tiny_vit: PrunableViT, tmp_path: Path) -> None:
    """It is held to its own reference; its dense model has the weights as they were trained.

    Images to evaluate on judge: here noise, as are those that are read.
    """
    images, judges = (
        make_images(tmp_path / name, classes=1, each=count)
        for name, count in (("images", 72), ("judges", 40))
    )
    recipe = recipe_with(
        images=images, eval_images=judges, rho=0.5, refit=True, rounds=0, threads=1
    )
    report = compile_model(recipe, tmp_path / "out", tiny_vit)
    assert report.passed and report.refit is not None
    assert (report.refit.read, report.refit.held_out) == (72, 40)
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert f"Refit: {words.refit(report.refit)}." in page
    files = [read_lowered(tmp_path / "out" / name) for name in report.files.values()]
    dense, pruned = sorted(files, key=lambda each: each.prunes)
    assert (
        dense.trained_sha256
        == pruned.refit_of
        == dense.weights_sha256
        == tiny_vit.weights_sha256
    )
    assert check_folder(tmp_path / "out", RunSettings()).passed
