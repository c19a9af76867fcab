"""Units go one at a time, in turns; a search that was killed ends with the same ones."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from exporter.core.base.errors import ArtefactError, DepthError
from exporter.core.base.vocabulary import AttentionVariant, UnitType
from exporter.core.vit.protocol import weights_sha256
from exporter.depth.checkpoint import read_depth
from exporter.depth.choose import (
    Bookmark,
    RankedViT,
    Skipped,
    Stage,
    Train,
    choose_units,
    spare,
)
from exporter.depth.gates import GatedViT, Importance
from exporter.depth.plan import ChoiceSettings, DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.models.identity import Identity
from tests.depth.models import seeded_vit
from tests.depth.training import nudge
from tests.power_cuts import PowerCutError
from tests.vits import make_vit, random_images

ATTENTION, ACTIVATION = UnitType.ATTENTION, UnitType.ACTIVATION
FREE = ChoiceSettings(units=1)
STAGE = Stage("stage", 0)


def towards(
    target: nn.Module, images: torch.Tensor, *, steps: int = 20, weights: float = 0.0
) -> Train:
    """Training of the scores, and with a rate of `weights` of all else, towards the answers of another network."""

    def train(student: nn.Module, stage: Stage) -> None:
        del stage
        assert isinstance(student, GatedViT)
        wanted = target(images).detach()
        groups = [
            {"params": [student.attention, student.activation], "lr": 1e-2},
            {"params": student.model.parameters(), "lr": weights},
        ]
        # steps by size: Adam's would all be the same, and scores tie
        optimizer = torch.optim.SGD(groups)
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.mse_loss(student(images), wanted).backward()
            optimizer.step()

    return train


@pytest.mark.parametrize(
    ("unit", "layer"),
    [(ATTENTION, 1), (ATTENTION, 3), (ATTENTION, 4), (ACTIVATION, 1), (ACTIVATION, 2)],
)
@pytest.mark.parametrize("family", ["deit", "lvvit"])
def test_the_unit_that_the_target_does_without_goes(
    unit: UnitType, layer: int, family: str
) -> None:
    vit = seeded_vit(family)
    plan = DepthPlan().also(unit, [layer])
    target = apply_plan(vit, plan, unmerged=True)
    found = RankedViT.whole(vit, FREE).trained(
        towards(target.model, random_images(vit, 4)), STAGE
    )
    assert min(found.importance.of(unit)) < 0
    pruned = found.without(unit, 1, FREE)
    assert pruned.plan == plan
    with torch.inference_mode():
        images = random_images(vit, 2, seed=3)
        assert torch.equal(pruned.vit.model(images), target.model(images))


def test_how_many_may_go() -> None:
    vit = make_vit()
    assert (spare(vit, ATTENTION, FREE), spare(vit, ACTIVATION, FREE)) == (3, 4)
    assert spare(vit, ATTENTION, ChoiceSettings(units=1, keep_attention=(1,))) == 3
    less = apply_plan(vit, DepthPlan((1, 2, 3)), unmerged=True)
    assert spare(less, ATTENTION, FREE) == 0
    with pytest.raises(
        DepthError,
        match=r"^attention units \| got 1 \| need at most 0, which can go \| one",
    ):
        spare(less, ATTENTION, FREE, 1)
    with pytest.raises(DepthError, match="activation units"):
        choose_units(
            make_vit("dinov2, gated mlp"), ChoiceSettings(activation_units=1), nudge(0)
        )


COUNTS = ChoiceSettings(attention_units=2, activation_units=1)


def test_a_stage_of_training_goes_before_each_unit() -> None:
    vit = seeded_vit()
    before, seen = vit.weights_sha256, list[Stage]()
    found = choose_units(vit, COUNTS, nudge(seen=seen))
    assert [stage.name for stage in seen] == [
        "stage 1 of 3: attention",
        "stage 2 of 3: activation",
        "stage 3 of 3: attention",
    ]
    assert (len(found.plan.attention), len(found.plan.activation)) == (2, 1)
    assert found.vit.spec.attention_layers == tuple(
        layer for layer in range(1, 5) if layer not in found.plan.attention
    )
    # The rest is trained, and nothing of the given network changed.
    images = random_images(vit, 2)
    with torch.inference_mode():
        fresh = apply_plan(vit, found.plan, unmerged=True).model(images)
        assert not torch.allclose(found.vit.model(images), fresh, atol=1e-3)
    assert weights_sha256(vit.model) == before


def test_the_least_important_go_and_of_equal_ones_the_first_layer() -> None:
    def train(student: nn.Module, stage: Stage) -> None:
        assert isinstance(student, GatedViT)
        if stage.index == 0:
            with torch.no_grad():
                student.attention.copy_(torch.tensor([-0.4, -0.1, 0.2, -0.4]))
                student.activation.copy_(torch.tensor([0.0, 0.5, -2.0, 0.1]))

    settings = ChoiceSettings(
        attention_units=2, activation_units=2, keep_activation=(3,)
    )
    found = choose_units(seeded_vit(), settings, train)
    assert found.plan == DepthPlan((1, 4), (1, 4))
    nose = ChoiceSettings(attention_units=1, variant=AttentionVariant.NOSE)
    assert choose_units(seeded_vit(), nose, train).plan == DepthPlan(
        (1,), (), AttentionVariant.NOSE
    )


@pytest.mark.parametrize("cut", [1, 2])
def test_a_search_that_was_killed_ends_with_the_same_bits(
    tmp_path: Path, cut: int
) -> None:
    vit = seeded_vit()
    whole = choose_units(vit, COUNTS, nudge())
    bookmark = Bookmark(tmp_path / "b.safetensors", Identity("vit", "vit"), "run")
    with pytest.raises(PowerCutError):
        choose_units(vit, COUNTS, nudge(cut), bookmark)
    with pytest.raises(
        ArtefactError, match=r"a search of other settings.*delete it to start again"
    ):
        choose_units(vit, COUNTS, nudge(), replace(bookmark, run="other settings"))
    seen: list[Stage] = []
    again = choose_units(vit, COUNTS, nudge(seen=seen), bookmark)
    assert [stage.index for stage in seen] == list(range(cut, 3))
    assert (again.plan, again.importance) == (whole.plan, whole.importance)
    assert again.vit.weights_sha256 == whole.vit.weights_sha256


IDENTITY = Identity("seeded", "deit_tiny_patch16_224")
PLAN = DepthPlan((2,), (1, 3))
IMPORTANCE = Importance((0.1, -0.2, 1 / 3, 0.0), (0.0, 1e-9, -1.0, 2.0))


@pytest.fixture
def bookmark(tmp_path: Path) -> Bookmark:
    vit = apply_plan(seeded_vit(), PLAN, unmerged=True)
    skipped = Skipped(training={"a.png": "torn"}, evaluation={"b.png": "torn"})
    made = Bookmark(tmp_path / "last.safetensors", IDENTITY, "settings", skipped)
    made.write(3, RankedViT(vit, PLAN, IMPORTANCE))
    return made


def test_it_is_read_back_and_another_file_is_refused(bookmark: Bookmark) -> None:
    found = bookmark.read(seeded_vit())
    assert found is not None
    stages, ranked, _ = found
    assert (stages, ranked.plan, ranked.importance) == (3, PLAN, IMPORTANCE)
    assert (
        ranked.vit.weights_sha256
        == apply_plan(seeded_vit(), PLAN, unmerged=True).weights_sha256
    )
    depth = read_depth(bookmark.path)
    assert depth is not None and (depth.plan, depth.merged) == (PLAN, False)
    bookmark.path.write_bytes(b"something else")
    with pytest.raises(ArtefactError, match=r"last\.safetensors \| got another file"):
        bookmark.read(seeded_vit())
