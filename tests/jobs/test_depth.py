"""Plans add up over checkpoints; choosing and collecting that were interrupted end with the same files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.core.base.errors import DepthError
from exporter.core.base.vocabulary import AttentionVariant
from exporter.data.images import ImageFolder
from exporter.depth.checkpoint import load_vit, read_depth
from exporter.depth.collect import read_samples
from exporter.depth.gates import Importance
from exporter.depth.plan import ChoiceSettings, DepthPlan
from exporter.jobs import depth
from exporter.jobs.depth import apply_to, choose_to, collect_to, split_of
from exporter.jobs.finetune import models_of
from exporter.jobs.network import Network
from exporter.jobs.opened import open_recipe
from exporter.models.request import ModelRequest
from exporter.training.data import TrainBatches
from exporter.training.settings import FinetuneSettings
from tests.commands import Workplace, recipe_with, tables_of
from tests.power_cuts import cut_after
from tests.shards import encoded

QUICK = FinetuneSettings(epochs=1, batch_size=4, lr=1e-3, augment="none", ema_decay=0.0)
COUNTS = ChoiceSettings(
    attention_units=1, activation_units=1, growth=1, last_weights=True
)
STEPS = ChoiceSettings(units=2)


@pytest.fixture
def job(workplace: Workplace) -> Network:
    return open_recipe(workplace.recipe()).network


def _torn(folder: Path) -> Path:
    """Images of two classes, the first of which cannot be read."""
    for at in range(8):
        path = folder / f"class_{at % 2}" / f"{at}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(at) if at else b"torn")
    return folder


def test_a_choice_is_a_checkpoint_to_fine_tune_and_merge(
    job: Network, tmp_path: Path
) -> None:
    out = tmp_path / "c.safetensors"
    done = choose_to(job, COUNTS, QUICK, out)
    plan = done.applied.depth.plan
    assert len(plan.attention) == 1
    assert len(plan.activation) == 1
    assert done.applied.depth.merged is False
    scores = done.importance
    assert plan.attention[0] == 1 + scores.attention.index(min(scores.attention))
    assert len(set(scores.activation)) == 4
    found = load_vit(ModelRequest("", out))
    assert found.spec.attention_layers == tuple(
        layer for layer in range(1, 5) if layer not in plan.attention
    )
    assert done.applied.gmacs_after < done.applied.gmacs_before
    assert [path.name for path in tmp_path.iterdir()] == ["c.safetensors"]
    apply_to(ModelRequest("", out), DepthPlan(), tmp_path / "merged.safetensors")
    merged = read_depth(tmp_path / "merged.safetensors")
    assert merged is not None and merged.plan == plan


def test_the_choice_starts_again_from_the_models_weights(
    job: Network, tmp_path: Path
) -> None:
    done = choose_to(
        job, replace(COUNTS, last_weights=False), QUICK, tmp_path / "c.safetensors"
    )
    apply_to(
        job.recipe.model,
        done.applied.depth.plan,
        tmp_path / "a.safetensors",
        unmerged=True,
    )
    assert (tmp_path / "c.safetensors").read_bytes() == (
        tmp_path / "a.safetensors"
    ).read_bytes()
    assert done.importance != Importance.unknown(4)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_choice_that_was_cut_ends_with_the_same_bytes(
    job: Network, tmp_path: Path, epochs: int
) -> None:
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    first = choose_to(job, COUNTS, QUICK, whole)
    with cut_after(epochs):
        choose_to(job, COUNTS, QUICK, cut)
    assert not cut.exists()
    second = choose_to(job, COUNTS, QUICK, cut)
    assert second.importance == first.importance
    assert cut.read_bytes() == whole.read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_collection_trains_on_no_more_images_than_are_asked_for(
    job: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: set[int] = set()

    def counted(images: ImageFolder, *rest: Any, **more: Any) -> TrainBatches:
        trained.add(len(images.files))
        return TrainBatches(images, *rest, **more)

    monkeypatch.setattr(depth, "TrainBatches", counted)
    found = collect_to(job, STEPS, replace(QUICK, max_train_images=8), tmp_path / "s")
    assert trained == {8}
    assert {sample.images for sample in found.samples} == {12}


def test_samples_are_what_the_predictor_takes(job: Network, tmp_path: Path) -> None:
    found = collect_to(job, STEPS, QUICK, tmp_path / "s")
    read = read_samples(tmp_path / "s" / "samples.json")
    assert [record.accuracy for record in read] == [
        sample.accuracy for sample in found.samples
    ]
    assert [(sample.plan.units, sample.images) for sample in found.samples] == [
        (0, 12),
        (1, 12),
        (2, 12),
        (1, 12),
        (2, 12),
        (2, 12),
    ]
    names = {path.name for path in (tmp_path / "s").iterdir()}
    assert names == {"samples.json", "last.safetensors"}
    assert set(split_of(job.described, read, STEPS).rmse) == {1}


def told(job: Network, **changes: Any) -> Network:
    """The same with other settings."""
    return replace(job, recipe=job.recipe.but(**tables_of(**changes)))


def test_images_that_cannot_be_read_are_named_also_after_an_interruption(
    job: Network, tmp_path: Path
) -> None:
    train, measured = (_torn(tmp_path / name) for name in ("train", "measured"))
    own = told(job, images=train, eval_images=measured)
    with cut_after(3):
        collect_to(own, STEPS, QUICK, tmp_path / "s")
    for _ in range(2):  # the second time nothing is read
        found = collect_to(own, STEPS, QUICK, tmp_path / "s")
        for each in (found.skipped, found.training_skipped):
            assert list(each) == ["class_0/0.png"]
    with cut_after(1):
        choose_to(own, COUNTS, QUICK, tmp_path / "c.safetensors")
    assert list(
        choose_to(own, COUNTS, QUICK, tmp_path / "c.safetensors").training_skipped
    ) == ["class_0/0.png"]


def test_a_model_without_some_units_is_not_measured(
    job: Network, tmp_path: Path
) -> None:
    less = tmp_path / "less.safetensors"
    apply_to(job.recipe.model, DepthPlan((2,)), less)
    pruned = told(job, model="", checkpoint=less, model_kwargs={})
    with pytest.raises(DepthError, match="a model without some units"):
        collect_to(pruned, STEPS, QUICK, tmp_path / "s")


def test_plans_add_up_and_training_form_is_merged_later(
    workplace: Workplace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = (tmp_path / f"{at}.safetensors" for at in range(3))
    apply_to(workplace.request, DepthPlan((2,), (3,)), first, unmerged=True)
    models_of(open_recipe(recipe_with(checkpoint=first)).network, None)
    assert "the teacher is the shallower network too" in caplog.text
    apply_to(ModelRequest("", first), DepthPlan((), (1,)), second, unmerged=True)
    apply_to(ModelRequest("", second), DepthPlan(), third)
    found = read_depth(third)
    assert found is not None
    assert (found.plan, found.merged) == (DepthPlan((2,), (1, 3)), True)
    at_once = tmp_path / "once.safetensors"
    apply_to(workplace.request, DepthPlan((2,), (1, 3)), at_once)
    assert third.read_bytes() == at_once.read_bytes()


def test_a_plan_that_does_not_fit_is_refused(
    workplace: Workplace, tmp_path: Path
) -> None:
    out = tmp_path / "d.safetensors"
    apply_to(workplace.request, DepthPlan((2,)), out)
    with pytest.raises(DepthError, match="whose layers are merged"):
        apply_to(
            ModelRequest("", out),
            DepthPlan((), (1,)),
            tmp_path / "e.safetensors",
            unmerged=True,
        )
    with pytest.raises(DepthError, match="twice"):
        apply_to(ModelRequest("", out), DepthPlan((2,)), tmp_path / "e.safetensors")
    with pytest.raises(DepthError, match="remove, as the checkpoint has"):
        apply_to(
            ModelRequest("", out),
            DepthPlan((3,), (), AttentionVariant.NOSE),
            tmp_path / "e.safetensors",
        )
