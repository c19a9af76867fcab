"""The report of two lowered models, and its page: examples are drawn by the reference."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.data.batches import first_images
from exporter.data.images import list_images
from exporter.evaluation.benchmark import compare_speed
from exporter.evaluation.report.record import Report
from exporter.formats.canonical_json import save_json
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.workflows.compiling.proof import prove
from exporter.workflows.compiling.reporting import report_of, save_page_of
from exporter.workflows.progress import Silent
from exporter.workflows.recipe import Measuring
from tests.evaluation.report.reports import times
from tests.lowering.models import a_star, dense, star
from tests.vits import make_images
from tests.workflows.compiling.pairs import lowered_pair


def reported(folder: Path, pruned: PrunedViT, pruned_ms: float) -> Report:
    """The report of a model, whose page is in the folder; times are made up: the unpruned model takes 10 ms."""
    spec, measuring = pruned.vit.spec, Measuring(batch=2, rounds=0, threads=1)
    found = list_images(make_images(folder / "images", classes=spec.num_classes, each=1), num_classes=7)
    references, models = Pair(dense(), pruned), lowered_pair(folder, pruned)
    images = first_images(found.files, spec.preprocessing, "float32", 3)
    proof = prove(references, models, folder=found, images=images, measuring=measuring, stages=Silent())
    timed = Pair(times(10.0, 2), times(pruned_ms, 2))
    proof = replace(proof, throughput=timed, comparison=compare_speed(timed.dense, timed.pruned, (4.0, 3.0)))
    report = report_of(references, models, proof=proof, calibration=None, folder=found, measuring=measuring)
    save_page_of(report, models.pruned.artefact, pruned, found, folder)
    return report


@pytest.mark.ort
def test_a_report_and_its_page(tmp_path: Path) -> None:
    report = reported(tmp_path, star(), pruned_ms=6.0)
    assert report.class_names == tuple(sorted(path.name for path in (tmp_path / "images").iterdir()))
    assert report.file_bytes["pruned"] == (tmp_path / "pruned.onnx").stat().st_size
    assert report.gmacs.most is None
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<div class="frames">') == len(report.examples) == 7
    assert "Accuracy against images per second" in page
    assert report.pair is not None and report.trade_off is not None
    (point,) = report.trade_off.points
    loss = report.pair.loss_points, report.pair.loss_interval_points
    assert (point.label, point.loss_points, point.interval_points) == ("star", *loss)
    assert (point.images_per_s, point.front) == (2e3 / 6, True)
    assert (report.trade_off.unpruned, report.trade_off.images) == ({report.target: 200.0}, 7)
    assert f"<td>{point.label}</td>" in page
    save_json(report, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["examples"][0]["image"]


@pytest.mark.ort
def test_macs_of_a_star_have_a_mean_and_a_most_and_a_slower_model_is_drawn_too(tmp_path: Path) -> None:
    report = reported(tmp_path, a_star(), pruned_ms=12.0)
    assert report.gmacs.most is not None and report.use is not None
    assert report.gmacs.pruned <= report.gmacs.most == report.use.most_macs / 1e9
    assert report.pair is not None and report.pair.loss_points is not None and report.trade_off is not None
    (point,) = report.trade_off.points
    assert point.front == (report.pair.loss_points < 0)
    assert f"<td>{point.label}</td>" in (tmp_path / "report.html").read_text(encoding="utf-8")
