"""Fine-tuning by the API: it writes what was trained, and an interruption changes nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from exporter.calibration import calibrate
from exporter.core.base.errors import (
    ModelError,
    RecipeError,
    UserError,
)
from exporter.core.base.vocabulary import Method
from exporter.jobs import checks, finetune
from exporter.jobs.exam import Exam
from exporter.jobs.finetune import finetune_model, models_of
from exporter.jobs.opened import open_recipe
from exporter.jobs.recipe import Recipe
from exporter.measure.accuracy import Predictions
from exporter.measure.loss import Tuned
from exporter.models.identity import read_identity, read_record
from exporter.models.registry import load
from exporter.models.request import ModelRequest
from exporter.processes import Processes
from exporter.training.pruned_checkpoint import TUNED, read_pruning
from exporter.training.settings import FinetuneSettings
from tests.commands import Workplace, recipe_with, tables_of
from tests.measure.hits import hits
from tests.power_cuts import PowerCutError, cut_after, none_to_score
from tests.shards import encoded, write_shard
from tests.vits import make_images, make_model, make_vit

QUICK = FinetuneSettings(epochs=2, batch_size=4, lr=1e-3, augment="deit", ema_decay=0.5)
METHODS: dict[str, dict[str, Any]] = {
    "tome": {"rho": 0.6},
    "star, drop": {"rho": 0.6, "method": "star", "max_images": 4},
    "star, merge": {
        "rho": 0.6,
        "method": "star",
        "reduce": "merge",
        "scorer": "intra",
        "max_images": 4,
    },
    "a-star": {"rho": 0.8, "method": "a-star", "scorer": "intra", "max_images": 4},
    "rates": {"rates": {2: 0.5}, "scorer": "intra"},
}


@pytest.fixture
def recipe(workplace: Workplace) -> Recipe:
    return workplace.recipe(rho=0.6, gamma=2)


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A shard of seven labelled images, the last of which cannot be read."""
    members: dict[str, bytes | str] = {f"{at}.cls": str(at % 2) for at in range(7)}
    members |= {f"{at}.png": encoded(at) for at in range(6)} | {"6.png": b"torn"}
    return write_shard(tmp_path / "a.tar", dict(sorted(members.items())))


@pytest.mark.parametrize("how", METHODS.values(), ids=METHODS)
def test_what_is_written_is_what_was_trained(
    how: dict[str, Any], recipe: Recipe, workplace: Workplace, tmp_path: Path
) -> None:
    out = tmp_path / "w.safetensors"
    result = finetune_model(recipe.but(**tables_of(**{"rho": None, **how})), QUICK, out)
    found = read_pruning(out)
    assert found is not None
    assert found.schedule == result.schedule
    assert (found.calibration is not None) == bool(found.schedule.inter_sha256)
    before, after = load(workplace.request), load(ModelRequest("", out))
    assert after.spec == replace(before.spec, class_names=("class_0", "class_1"))
    assert after.weights_sha256 != before.weights_sha256
    changed = [
        name
        for name, value in before.model.state_dict().items()
        if not torch.equal(value, after.model.state_dict()[name])
    ]
    assert len(changed) == len(list(before.model.parameters()))
    assert result.gmacs_pruned < result.gmacs_dense
    assert not out.with_suffix(".ckpt").exists()


def test_it_leaves_no_worse_model_than_it_found(recipe: Recipe, tmp_path: Path) -> None:
    """Of 64 images six choose the epoch. What has learned them is trained on at a rate that ruins it."""
    place, good, bad = (
        tmp_path / name for name in ("images", "good.safetensors", "bad.safetensors")
    )
    make_images(place, each=32)
    settings = replace(
        QUICK, epochs=8, batch_size=16, augment="none", ema_decay=0.0, distillation=0.0
    )
    learned = finetune_model(
        recipe.but(**tables_of(images=place, eval_images=place)), settings, good
    )
    assert (learned.trained.images, learned.trained.held_out) == (58, 6)
    assert learned.trained.epoch > 0 and learned.after.top1 > learned.before.top1
    ruined = replace(settings, epochs=1, lr=1.0)
    found = finetune_model(
        recipe_with(checkpoint=good, images=place, eval_images=place), ruined, bad
    )
    assert (
        found.trained.epoch == 0
        and found.after.top1 == found.before.top1 == learned.after.top1
    )
    assert found.recovery.share is None
    before, after = load_file(good), load_file(bad)
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_worse_weights_are_not_kept_whatever_chose_them(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few images have none to hold out: those to measure on say no."""
    predictions = iter([(answers(9), answers(8)), (answers(7),)])
    monkeypatch.setattr(Exam, "predictions", lambda *_: next(predictions))
    result = finetune_model(
        recipe, replace(QUICK, max_train_images=8), tmp_path / "w.safetensors"
    )
    assert result.trained.epoch == 0
    assert result.trained.images == 8
    assert result.trained.held_out == 0
    assert result.after.top1 == result.before.top1 == 0.8
    before = load_file(recipe.model.checkpoint or "")
    after = load_file(tmp_path / "w.safetensors")
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_the_file_keeps_what_was_measured_and_what_an_earlier_one_kept(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    predictions = iter(
        [
            (answers(9), answers(5)),
            (answers(8),),
            (answers(8), answers(7)),
            (answers(7),),
        ]
    )
    monkeypatch.setattr(Exam, "predictions", lambda *_: next(predictions))
    assert read_record(recipe.model.checkpoint, TUNED, Tuned) is None
    own = finetune_model(
        recipe.but(**tables_of(method=Method.STAR, max_images=4)), QUICK, first
    )
    assert own.loss_before.loss_points == pytest.approx(40)
    assert own.recovery.share == pytest.approx(0.75)
    assert own.loss_after.classes[0].name == "class_1"
    again = recipe_with(
        checkpoint=first,
        images=recipe.images.images,
        eval_images=recipe.images.eval_images,
    )
    result = finetune_model(again, QUICK, second, teacher=recipe.model.checkpoint)
    one, two = read_pruning(first), read_pruning(second)
    assert one is not None and two is not None
    assert (
        one.schedule == two.schedule == result.schedule
        and result.schedule.method == "star"
    )
    found = read_record(second, TUNED, Tuned)
    assert found is not None and found.earlier == read_record(first, TUNED, Tuned)
    assert [each.loss.loss_points for each in found.every] == pytest.approx([10, 10])
    tops = [
        (each.accuracy.dense.top1, each.accuracy.pruned.top1) for each in found.every
    ]
    assert tops == [(0.8, 0.7), (0.9, 0.8)]
    assert (found.loss.images, found.loss.classes) == (10, ())
    assert found.place == str(Path(*(recipe.images.eval_images or Path()).parts[-2:]))


@pytest.mark.parametrize("after", [1, 2])
def test_a_run_that_was_cut_ends_with_the_same_bytes(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """And it reads its calibration, which is left beside it until then."""
    how = recipe.but(**tables_of(method=Method.STAR, max_images=4))
    whole, parted = (tmp_path / name / "w.safetensors" for name in ("whole", "parted"))
    expected = finetune_model(how, QUICK, whole)
    with cut_after(after):
        finetune_model(how, QUICK, parted)
    assert not parted.exists()
    monkeypatch.setattr(calibrate, "scored_chunks", none_to_score)
    result = finetune_model(how, QUICK, parted)
    assert whole.read_bytes() == parted.read_bytes()
    assert replace(result, trained=expected.trained) == expected
    assert [path.name for path in parted.parent.iterdir()] == ["w.safetensors"]


def test_a_run_that_was_cut_after_its_last_epoch_names_what_it_skipped(
    recipe: Recipe, torn: Path, tmp_path: Path
) -> None:
    how = recipe.but(**tables_of(images=torn))
    settings = replace(QUICK, batch_size=7, repeats=1)
    with cut_after(settings.epochs):
        finetune_model(how, settings, tmp_path / "w.safetensors")
    result = finetune_model(how, settings, tmp_path / "w.safetensors")
    assert list(result.trained.skipped) == ["a.tar/6.png"]


def test_a_checkpoint_of_another_run_is_refused(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "w.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "save_weights", _cut)
        with pytest.raises(PowerCutError):
            finetune_model(recipe, QUICK, out)
    with pytest.raises(
        UserError, match="a training of other settings, images or versions"
    ):
        finetune_model(recipe, replace(QUICK, seed=1), out)


def _cut(*_: object, **__: object) -> None:
    raise PowerCutError


def test_a_model_of_the_callers_is_trained_like_a_named_one(
    recipe: Recipe, workplace: Workplace, tmp_path: Path
) -> None:
    """A module in training mode, and an adapter: the weights are those of the same run by name."""
    expected = finetune_model(recipe, QUICK, tmp_path / "named.safetensors")
    adapter = load(workplace.request)
    module = load(workplace.request).model.train().requires_grad_(True)
    nameless = recipe.but(**tables_of(model="", checkpoint=None, model_kwargs={}))
    own: tuple[tuple[str, Any], ...] = (("module", module), ("adapter", adapter))
    for kind, model in own:
        out = tmp_path / f"{kind}.safetensors"
        result = finetune_model(nameless, QUICK, out, model=model)
        named, made = load_file(tmp_path / "named.safetensors"), load_file(out)
        assert all(torch.equal(value, made[name]) for name, value in named.items())
        assert (
            replace(result, model=expected.model, trained=expected.trained) == expected
        )
        assert read_identity(out) is None and read_pruning(out) is not None
    # The names are the module's own. The file has its schedule, and serves a name that is given beside it.
    module.load_state_dict(load_file(tmp_path / "module.safetensors"))
    opened = open_recipe(recipe_with(checkpoint=tmp_path / "module.safetensors"))
    assert opened.given is not None and opened.given.rho == recipe.prune.rho
    assert (
        load(
            replace(
                workplace.request, checkpoint=opened.network.recipe.model.checkpoint
            )
        ).spec
        == adapter.spec
    )


def test_the_teacher_may_be_another_checkpoint(recipe: Recipe, tmp_path: Path) -> None:
    state = load_file(recipe.model.checkpoint or "")
    state["head.weight"] = state["head.weight"].flip(0)
    state["head.bias"] = state["head.bias"].flip(0)
    torch.save(state, tmp_path / "teacher.pth")
    settings = replace(QUICK, epochs=1, distillation=1.0)
    # one epoch makes it no worse: the weights are the epoch's
    how = recipe.but(**tables_of(method=Method.TOME))
    finetune_model(how, settings, tmp_path / "own.safetensors")
    finetune_model(
        how, settings, tmp_path / "other.safetensors", teacher=tmp_path / "teacher.pth"
    )
    assert (tmp_path / "own.safetensors").read_bytes() != (
        tmp_path / "other.safetensors"
    ).read_bytes()
    # The same teacher with its classes in another order, by their names.
    names = ["class_1", "class_0"]
    torch.save({"state_dict": state, "class_names": names}, tmp_path / "teacher.pth")
    finetune_model(
        how, settings, tmp_path / "named.safetensors", teacher=tmp_path / "teacher.pth"
    )
    tuned, again = (
        load_file(tmp_path / f"{name}.safetensors") for name in ("own", "named")
    )
    assert all(torch.equal(value, again[name]) for name, value in tuned.items())


def test_shards_are_trained_on_and_a_corrupt_member_is_counted(
    recipe: Recipe, torn: Path, tmp_path: Path
) -> None:
    shards = recipe.but(**tables_of(images=torn, eval_images=torn))
    result = finetune_model(
        shards, replace(QUICK, batch_size=7, repeats=1), tmp_path / "w.safetensors"
    )
    assert (result.trained.images, result.after.images) == (7, 6)
    assert list(result.skipped) == ["a.tar/6.png"]
    assert list(result.trained.skipped) == ["a.tar/6.png"]


def test_processes_share_whole_batches(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "processes", lambda: Processes(0, 3))
    with pytest.raises(
        RecipeError, match=r"batch_size \| got 4 \| need a multiple of the 3 processes"
    ):
        finetune_model(recipe, QUICK, tmp_path / "w.safetensors")


def test_a_teacher_that_does_not_fit_is_refused(workplace: Workplace) -> None:
    with pytest.raises(RecipeError, match=r"teacher \| got a file beside a model"):
        models_of(open_recipe(Recipe(), model=make_model()).network, "w.pth")
    with pytest.raises(ModelError, match=r"teacher \| got 5 classes \| need 2"):
        models_of(open_recipe(workplace.recipe()).network, make_vit(num_classes=5))
    other = make_vit(num_classes=2)
    preprocessing = replace(other.spec.preprocessing, mean=(0.485, 0.456, 0.406))
    other.spec = replace(other.spec, preprocessing=preprocessing)
    with pytest.raises(ModelError, match=r"teacher \| got .* mean 0.485 .* need .*0.5"):
        models_of(open_recipe(workplace.recipe()).network, other)


def answers(right: int) -> Predictions:
    """Class 1 for the first so many of ten images of class 1, class 0 for the others."""
    return Predictions(hits(right, 10).astype(np.int64)[:, None], np.ones(10, np.int64))
