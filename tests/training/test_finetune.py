"""One loop trains any model: plain or pruned, from labels or from a teacher, and changes nothing else."""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporter.core.base.errors import ArtefactError, ImageError, ModelError, RecipeError
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.models.registry import trainable
from exporter.training.finetune import EpochBatches, TrainBatch, finetune
from exporter.training.settings import FinetuneSettings
from tests.vits import make_model, make_vit

RATES = {1: 0.8, 2: 0.7, 4: 0.5}
FAST = FinetuneSettings(epochs=4, lr=1e-3, batch_size=4, clip_grad=1.0, ema_decay=0.0)
LAYOUTS = [
    (Method.STAR, "shrinking"),
    (Method.A_STAR, "shrinking"),
    (Method.A_STAR, "packed"),
    (Method.A_STAR, "padded"),
]


def images_and_labels() -> TrainBatch:
    """Eight images of noise of different strength, so that they keep different numbers of patches."""
    generator = torch.Generator().manual_seed(5)
    strength = torch.linspace(0.3, 3.0, 8)[:, None, None, None]
    return torch.randn(8, 3, 32, 32, generator=generator) * strength, torch.arange(
        8
    ) % 3


def batches(epoch: int) -> list[TrainBatch]:
    """Two batches, in another order from epoch to epoch."""
    images, labels = images_and_labels()
    order = torch.randperm(8, generator=torch.Generator().manual_seed(epoch))
    return [(images[part], labels[part]) for part in order.split(4)]


def always(batch: TrainBatch) -> EpochBatches:
    """Every epoch is this batch."""
    return lambda _: [batch]


def pruned_student(
    method: Method = Method.STAR, layout: str = "shrinking", family: str = "vit"
) -> PrunedViT:
    vit = make_vit(family)
    schedule = manual_schedule(
        vit.spec, RATES, resolve(Prune("intra", method=method, reduce="drop"))
    )
    return PrunedViT(vit, schedule, layout=layout).eval()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(model.state_dict())


def changed(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {
        name
        for name, value in model.state_dict().items()
        if not torch.equal(value, before[name])
    }


def losses_of(
    student: nn.Module,
    teacher: nn.Module | None = None,
    settings: FinetuneSettings = FAST,
) -> list[float]:
    losses: list[float] = []
    finetune(
        student,
        teacher,
        batches,
        settings,
        on_epoch=lambda _, loss: losses.append(loss),
    )
    return losses


@pytest.mark.parametrize(("method", "layout"), LAYOUTS)
def test_a_pruned_model_learns_through_the_tokens_that_it_keeps(
    method: Method, layout: str
) -> None:
    student = pruned_student(method, layout)
    before = weights_of(student)
    with trainable(student.vit):
        losses = losses_of(student)
    assert losses[-1] < 0.8 * losses[0]
    assert changed(student, before) == set(dict(student.named_parameters()))
    assert not any(part.training for part in student.modules())
    assert not any(parameter.requires_grad for parameter in student.parameters())


@pytest.mark.parametrize("family", ["vit", "lvvit"])
@pytest.mark.parametrize(("method", "layout"), LAYOUTS)
def test_the_gradient_of_a_batch_is_the_sum_over_its_images(
    method: Method, layout: str, family: str
) -> None:
    """Padding and packing send nothing back: an image alone has neither."""
    student = pruned_student(method, layout, family)
    size = student.vit.spec.preprocessing.input_size
    images = (
        torch.randn(3, *size, generator=torch.Generator().manual_seed(1))
        * torch.tensor([0.3, 1.0, 3.0])[:, None, None, None]
    )
    with trainable(student.vit):
        together = gradients(student, images)
        alone = [gradients(student, images[index : index + 1]) for index in range(3)]
    for name, gradient in together.items():
        expected = torch.stack([each[name] for each in alone]).sum(0)
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4, msg=name)


def gradients(student: PrunedViT, images: Tensor) -> dict[str, Tensor]:
    student.zero_grad()
    student(images).square().sum().backward()
    return {
        name: value.grad.clone()
        for name, value in student.named_parameters()
        if value.grad is not None
    }


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_loss_is_the_labels_and_the_teachers_by_their_shares(share: float) -> None:
    teacher, student = make_model(seed=1), make_model()
    images, labels = images_and_labels()
    with torch.no_grad():
        logits, asked = student(images), teacher(images).argmax(1)
    hard = nn.functional.cross_entropy(logits, asked)
    soft = nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)
    settings = replace(FAST, epochs=1, distillation=share)
    losses: list[float] = []
    batch = always((images, labels))
    finetune(
        student, teacher, batch, settings, on_epoch=lambda _, loss: losses.append(loss)
    )
    assert losses == pytest.approx([float((1 - share) * soft + share * hard)], rel=1e-4)


def test_mixed_targets_are_shares_of_the_classes() -> None:
    images, labels = images_and_labels()
    mixed = nn.functional.one_hot(labels, 7).float()
    by_class, by_share = make_model(), make_model()
    for student, targets in ((by_class, labels), (by_share, mixed)):
        finetune(student, None, always((images, targets)), replace(FAST, epochs=1))
    for one, other in zip(by_class.parameters(), by_share.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    settings = replace(FAST, epochs=3, warmup_epochs=1, ema_decay=0.9)
    whole, parted = make_model(drop_path_rate=0.2), make_model(drop_path_rate=0.2)
    finetune(whole, None, batches, settings)

    def stop(done: int, _: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    place = tmp_path / "run.ckpt"
    with pytest.raises(KeyboardInterrupt):
        finetune(parted, None, batches, settings, checkpoint=place, on_epoch=stop)
    seen: list[int] = []
    anew = make_model(seed=9, drop_path_rate=0.2)
    finetune(
        anew,
        None,
        batches,
        settings,
        checkpoint=place,
        on_epoch=lambda done, _: seen.append(done),
    )
    assert seen == [3]
    assert not changed(anew, weights_of(whole))
    with pytest.raises(ArtefactError, match="other settings"):
        finetune(
            anew, None, batches, settings, checkpoint=place, identity="another run"
        )


def test_embeddings_of_a_wrapped_model_do_not_decay() -> None:
    """Positions and the class token are named by the network, wherever it stands in the student."""
    settings = replace(FAST, epochs=1, weight_decay=100.0)
    student = pruned_student()
    with trainable(student.vit):
        before = weights_of(student.model)
        losses_of(student, settings=settings)
    after = student.model.state_dict()
    assert float((after["cls_token"] - before["cls_token"]).abs().max()) < 0.01
    kept = (
        after["blocks.0.mlp.fc1.weight"].norm()
        / before["blocks.0.mlp.fc1.weight"].norm()
    )
    assert float(kept) < 0.9


def test_what_cannot_be_trained_is_one_line() -> None:
    vit = make_vit()
    before = weights_of(vit.model)
    with pytest.raises(
        ModelError, match=r"student \| got a model whose parameters are all frozen"
    ):
        finetune(vit.model, None, batches, FAST)
    assert not changed(vit.model, before)
    with pytest.raises(ImageError, match="an epoch without images"):
        finetune(make_model(), None, lambda _: [], FAST)


@pytest.mark.parametrize("good", [0, 1])
def test_a_loss_that_is_no_number_ends_the_run_without_a_checkpoint(
    tmp_path: Path, good: int
) -> None:
    """It would refuse the lower learning rate that the message asks for."""
    student = make_model()
    place = tmp_path / "run.ckpt"
    (images, labels) = images_and_labels()

    def diverging(epoch: int) -> list[TrainBatch]:
        return [(images * (1 if epoch < good else math.nan), labels)]

    expected = (
        rf"a loss of nan in epoch {good + 1} \| need finite numbers \| lower --lr"
    )
    with pytest.raises(RecipeError, match=expected):
        finetune(student, None, diverging, FAST, checkpoint=place, identity="high")
    assert not place.exists()
    assert not any(part.training for part in student.modules())


def test_weights_that_the_last_step_broke_end_the_run(tmp_path: Path) -> None:
    """Its loss was measured before the step, so that it is a number."""
    student, place = make_model(), tmp_path / "run.ckpt"

    def breaking(_: int) -> Iterator[TrainBatch]:
        yield images_and_labels()
        with torch.no_grad():
            student.get_parameter("head.bias").fill_(math.inf)

    with pytest.raises(RecipeError, match="weights that are no numbers after epoch 1"):
        finetune(student, None, breaking, FAST, checkpoint=place)
    assert not place.exists()


def test_frozen_parameters_stay_as_they_are() -> None:
    student = make_model()
    student.get_submodule("blocks.0").requires_grad_(False)
    before = weights_of(student)
    losses_of(student)
    names = changed(student, before)
    assert names
    assert not {name for name in names if name.startswith("blocks.0")}


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ((5, 4, 3, 2, 1), 0),
        ((1, 2, 3, 2, 1), 2),
        ((1, 2, 2, 1, 1), 2),
        ((0, 0, 0, 0, 0), 4),
    ],
)
def test_the_best_weights_are_left_also_of_a_run_that_was_cut(
    scores: tuple[int, ...], best: int, ema_decay: float, tmp_path: Path
) -> None:
    """Those before training are among them; of equal ones, the later."""
    settings, place = replace(FAST, ema_decay=ema_decay), tmp_path / "w.ckpt"
    seen: list[dict[str, Tensor]] = []

    def score(model: nn.Module) -> float:
        seen.append(weights_of(model))
        return scores[len(seen) - 1]

    def stop(done: int, _: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune(
            make_model(),
            None,
            batches,
            settings,
            checkpoint=place,
            on_epoch=stop,
            score=score,
        )
    student = make_model()
    assert (
        finetune(student, None, batches, settings, checkpoint=place, score=score)
        == best
    )
    assert len(seen) == 5
    assert changed(student, seen[best]) == set()
