"""Divergence without labels."""

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, kl_divergence

import exporter
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.training.divergence import Judges, answers
from tests.vits import make_model, random_images


def pruned_to(vit: PrunableViT, rate: float) -> PrunedViT:
    schedule = manual_schedule(vit.spec, {1: rate}, resolve(Prune()))
    return PrunedViT(vit, schedule).eval()


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
