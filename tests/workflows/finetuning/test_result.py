"""The result compares three models on the same images."""

import numpy as np
import pytest

from exporter.evaluation.accuracy import Predictions
from exporter.models.base import PrunableViT
from exporter.schedule.macs import dense_macs
from exporter.schedule.plan import Prune, tome_schedule
from exporter.training.settings import FinetuneSettings
from exporter.workflows.finetune import Trained, result_of
from tests.evaluation.hits import hits


def answers(right: int) -> Predictions:
    """Class 1 for the first so many of ten images of class 1, class 0 for the others."""
    return Predictions(hits(right, 10).astype(np.int64)[:, None], np.ones(10, np.int64))


def test_losses_are_against_the_unpruned_model(tiny_vit: PrunableViT) -> None:
    schedule = tome_schedule(tiny_vit.spec, 0.6, Prune())
    trained = Trained("w.safetensors", 40, {"torn.png": "why"}, FinetuneSettings(), 1)
    found = result_of(
        tiny_vit.spec,
        schedule,
        2e9,
        trained,
        dense=answers(9),
        before=answers(5),
        after=answers(8),
        class_names={1: "one"},
        skipped={"b.png": "why"},
    )
    assert (found.top1_dense, found.top1_before, found.top1_after) == (0.9, 0.5, 0.8)
    assert found.loss_before.loss_points == pytest.approx(40)
    assert found.loss_after.loss_points == pytest.approx(10)
    assert found.loss_after.classes[0].name == "one"
    assert found.recovery.share == pytest.approx(0.75)
    assert found.interval_before[0] < 0.5 < found.interval_before[1]
    assert (found.method, found.reduce, found.rho) == ("tome", "merge-weighted", 0.6)
    assert found.gmacs_dense == dense_macs(tiny_vit.spec).gmacs
    assert found.gmacs_pruned == 2.0
    assert (found.trained, found.skipped) == (trained, {"b.png": "why"})
    assert repr(found) == f"<FinetuneResult {tiny_vit.spec.name}, tome: 50.00% → 80.00%, unpruned 90.00%>"
