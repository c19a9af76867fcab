"""A ViT that is trained and pruned in turns; nothing that it is made of changes."""

import pytest
import torch
from torch import nn

from exporter.depth.choose import RankedViT, Stage, Train, spare
from exporter.depth.gates import GatedViT, Importance
from exporter.depth.plan import DepthPlan, UnitSettings
from exporter.depth.surgery import apply_plan
from exporter.errors import DepthError
from exporter.models.base import PrunableViT
from exporter.models.weights import weights_sha256
from exporter.vocabulary import UnitType
from tests.depth.models import seeded_vit
from tests.vits import make_vit, random_images

ATTENTION, ACTIVATION = UnitType.ATTENTION, UnitType.ACTIVATION
FREE = UnitSettings()
STAGE = Stage("stage", 0)


def towards(target: nn.Module, images: torch.Tensor, *, steps: int = 20, weights: float = 0.0) -> Train:
    """Training of the scores, and with a rate of `weights` of all else, towards the answers of another network."""

    def train(student: nn.Module, stage: Stage) -> None:
        del stage
        assert isinstance(student, GatedViT)
        wanted = target(images).detach()
        groups = [
            {"params": [student.attention, student.activation], "lr": 1e-2},
            {"params": student.model.parameters(), "lr": weights},
        ]
        optimizer = torch.optim.SGD(groups)  # steps by size: Adam's would all be the same, and scores tie
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.mse_loss(student(images), wanted).backward()
            optimizer.step()

    return train


@pytest.mark.parametrize(
    ("unit", "layer"), [(ATTENTION, 1), (ATTENTION, 3), (ATTENTION, 4), (ACTIVATION, 1), (ACTIVATION, 2)]
)
@pytest.mark.parametrize("family", ["deit", "lvvit"])
def test_the_unit_that_the_target_does_without_goes(unit: UnitType, layer: int, family: str) -> None:
    vit = seeded_vit(family)
    plan = DepthPlan().also(unit, [layer])
    target = apply_plan(vit, plan, unmerged=True)
    found = RankedViT.whole(vit, FREE).trained(towards(target.model, random_images(vit, 4)), STAGE)
    assert min(found.importance.of(unit)) < 0
    pruned = found.without(unit, 1, FREE)
    assert pruned.plan == plan
    with torch.inference_mode():
        images = random_images(vit, 2, seed=3)
        assert torch.equal(pruned.vit.model(images), target.model(images))


def test_a_useless_unit_goes_where_all_others_help() -> None:
    """The scores of the others rise, for the target is a network whose branches are larger."""
    vit = seeded_vit()
    larger = seeded_vit()
    with torch.no_grad():
        for own, grown in zip(vit.blocks, larger.blocks, strict=True):
            assert own.attention is not None and grown.attention is not None
            grown.attention.proj.weight.mul_(1.2)
            grown.attention.proj.bias.mul_(1.2)
            if own is vit.blocks[2]:
                for part in (own.attention, grown.attention):
                    part.proj.weight.zero_()
                    part.proj.bias.zero_()
    found = RankedViT.whole(vit, FREE).trained(towards(larger.model, random_images(vit, 8), steps=5), STAGE)
    scores = found.importance.attention
    assert scores[2] == 0 and sum(score > 0 for score in scores) == 3
    assert found.without(ATTENTION, 1, FREE).plan.attention == (3,)


def test_training_changes_a_copy() -> None:
    vit = seeded_vit()
    before, images = vit.weights_sha256, random_images(vit, 2)
    start = RankedViT.whole(vit, FREE)
    after = start.trained(towards(make_vit("deit").model, images, weights=1e-3, steps=2), STAGE)
    assert (weights_sha256(vit.model), start.vit.weights_sha256) == (before, before)
    assert after.vit.weights_sha256 == weights_sha256(after.vit.model) != before
    assert start.importance == Importance.unknown(4) != after.importance
    assert not any(each.requires_grad for each in after.vit.model.parameters())
    assert not after.vit.model.training
    less = after.without(ACTIVATION, 2, FREE)
    assert less.importance == after.importance
    assert after.plan == DepthPlan()


def ranked(vit: PrunableViT, attention: tuple[float, ...]) -> RankedViT:
    return RankedViT(vit, DepthPlan(), Importance(attention, (0.0,) * 4))


def test_the_lowest_signed_score_goes_and_of_equal_ones_the_first_layer() -> None:
    vit = make_vit()
    assert ranked(vit, (0.1, -0.5, 0.0, 0.4)).without(ATTENTION, 1, FREE).plan.attention == (2,)
    assert ranked(vit, (0.1, -0.5, 0.0, 0.4)).without(ATTENTION, 3, FREE).plan.attention == (1, 2, 3)
    assert ranked(vit, (0.0, 0.0, 0.0, 0.0)).without(ATTENTION, 2, FREE).plan.attention == (1, 2)
    kept = UnitSettings(keep_attention=(2,))
    assert ranked(vit, (0.1, -0.5, 0.0, 0.4)).without(ATTENTION, 1, kept).plan.attention == (3,)


def test_how_many_may_go() -> None:
    vit = make_vit()
    assert (spare(vit, ATTENTION, FREE), spare(vit, ACTIVATION, FREE)) == (3, 4)
    assert spare(vit, ATTENTION, UnitSettings(keep_attention=(1,))) == 3
    less = apply_plan(vit, DepthPlan((1, 2, 3)), unmerged=True)
    assert spare(less, ATTENTION, FREE) == 0
    with pytest.raises(DepthError, match=r"^attention units \| got 1 \| need at most 0, which can go \| one"):
        ranked(less, (0.0,) * 4).without(ATTENTION, 1, FREE)
    with pytest.raises(DepthError, match="activation units"):
        spare(make_vit("dinov2, gated mlp"), ACTIVATION, FREE, 1)


def test_layers_that_stay_are_layers_of_the_model() -> None:
    with pytest.raises(DepthError, match=r"^keep_attention \| got layer 5 \| need layers from 1 to 4"):
        RankedViT.whole(make_vit(), UnitSettings(keep_attention=(5,)))
