"""Divergence without labels: who is read, and who says what is gained."""

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, kl_divergence

import exporter
from exporter.core.prune.divergence import Judges, answers, nearest, spread
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything, manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from tests.vits import make_model, random_images


@pytest.mark.parametrize("count", [20, 10])
def test_some_images_are_of_every_class(count: int) -> None:
    """A folder gives its images class by class, here 4 classes of 10."""
    few, places = spread(torch.arange(4).repeat_interleave(10).split(8), count)
    assert len(places) == count
    assert torch.cat(list(few)).bincount().tolist() == pytest.approx(
        [count / 4] * 4, abs=1
    )


def pruned_to(vit: PrunableViT, rate: float) -> PrunedViT:
    schedule = manual_schedule(vit.spec, {1: rate}, resolve(Prune()))
    return PrunedViT(vit, schedule).eval()


def test_the_nearest_model_is_taken_where_others_show_that_it_is(
    tiny_vit: PrunableViT,
) -> None:
    """From the first model, which is the one to beat."""
    images = random_images(tiny_vit, 64).split(16)
    judges = Judges.of(tiny_vit, images)
    models = [pruned_to(tiny_vit, rate) for rate in (0.3, 0.5, 0.95)]
    progress: list[tuple[int, int]] = []
    place, gain = nearest(models, judges, judges, lambda *done: progress.append(done))
    assert (place, gain.shown, gain.held_out) == (2, True, 64)
    assert progress == [(1, 3), (2, 3), (3, 3)]
    place, gain = nearest([models[2], models[0]], judges, judges)
    assert (place, gain.gain) == (0, 0.0)


def test_fewer_judges_are_spread_over_all(tiny_vit: PrunableViT) -> None:
    judges = Judges.of(tiny_vit, random_images(tiny_vit, 40).split(16))
    few = judges.at_most(10)
    images = torch.cat(list(few.images))
    assert len(few) == len(images) == 10
    assert torch.equal(few.answers, judges.answers[3::4])
    assert torch.equal(images, torch.cat(list(judges.images))[3::4])
    assert len(judges.at_most(100)) == 40
    dense = PrunedViT(tiny_vit, keep_everything(tiny_vit.spec)).eval()
    assert few.divergences(dense).max() < 1e-9


@pytest.mark.parametrize(
    ("answers", "share"),
    [
        ([[9.0, 0.0, 0.0], [9.0, 0.0, 0.0]], 0.0),  # sure, and always the same
        ([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], 0.0),
        ([[99.0, 0.0, 0.0], [0.0, 99.0, 0.0]], 1.0),
    ],
)
def test_images_are_told_apart_by_answers_that_follow_them(
    tiny_vit: PrunableViT, answers: list[list[float]], share: float
) -> None:
    judges = Judges(tiny_vit, [], torch.tensor(answers))
    assert judges.told_apart == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("head", ["logits", "labels", "values"])
@pytest.mark.parametrize("numbers", [1, 5])
def test_the_divergence_is_that_of_what_the_numbers_are(
    head: str, numbers: int
) -> None:
    """Of classes between categories, of labels and one logit between yes and no, of values in their deviations."""
    vit = exporter.load_model(make_model(num_classes=numbers), head=head)
    images = random_images(vit, 24).split(8)
    judges, pruned = Judges.of(vit, images), pruned_to(vit, 0.4)
    changed = answers(pruned, images).double()
    dense = judges.answers.double()
    if head == "values":
        expected = ((changed - dense) / dense.std(0, correction=0)).square().mean(-1)
    elif head == "labels" or numbers == 1:
        chances = Bernoulli(logits=dense), Bernoulli(logits=changed)
        expected = kl_divergence(*chances).sum(-1)
    else:
        classes = Categorical(logits=dense), Categorical(logits=changed)
        expected = kl_divergence(*classes)
    assert judges.divergences(pruned) == pytest.approx(expected.numpy(), rel=1e-4)
    assert expected.max() > 0
    assert 0 <= judges.told_apart <= 1
