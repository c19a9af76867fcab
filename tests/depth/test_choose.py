"""Units go one at a time, in turns; a search that was killed ends with the same ones."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from exporter.depth.choose import Bookmark, Stage, choose_units, turns
from exporter.depth.gates import GatedViT
from exporter.depth.plan import ChoiceSettings, DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.errors import DepthError
from exporter.models.identity import Identity
from exporter.models.weights import weights_sha256
from exporter.vocabulary import AttentionVariant, UnitType
from tests.depth.models import seeded_vit
from tests.depth.training import PowerCutError, nudge
from tests.vits import random_images

COUNTS = ChoiceSettings(attention_units=2, activation_units=1)


@given(st.integers(0, 12), st.integers(0, 12))
def test_types_take_turns_until_each_count_is_reached(attention: int, activation: int) -> None:
    order = list(turns(attention, activation))
    assert order.count(UnitType.ATTENTION) == attention
    assert order.count(UnitType.ACTIVATION) == activation
    both = 2 * min(attention, activation)
    first = UnitType.ATTENTION if attention > activation else UnitType.ACTIVATION
    assert all((each == first) == (place % 2 == 0) for place, each in enumerate(order[:both]))
    assert len(set(order[both:])) <= 1


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


def test_the_least_important_go_in_the_order_of_their_scores() -> None:
    def train(student: nn.Module, stage: Stage) -> None:
        assert isinstance(student, GatedViT)
        if stage.index == 0:
            with torch.no_grad():
                student.attention.copy_(torch.tensor([0.3, -0.1, 0.2, -0.4]))
                student.activation.copy_(torch.tensor([0.0, 0.5, -2.0, 0.1]))

    settings = ChoiceSettings(attention_units=2, activation_units=2, keep_activation=(3,))
    found = choose_units(seeded_vit(), settings, train)
    assert found.plan == DepthPlan((2, 4), (1, 4))
    nose = ChoiceSettings(attention_units=1, variant=AttentionVariant.NOSE)
    assert choose_units(seeded_vit(), nose, train).plan == DepthPlan((4,), (), AttentionVariant.NOSE)


@pytest.mark.parametrize("cut", [1, 2])
def test_a_search_that_was_killed_ends_with_the_same_bits(tmp_path: Path, cut: int) -> None:
    vit = seeded_vit()
    whole = choose_units(vit, COUNTS, nudge())
    bookmark = Bookmark(tmp_path / "b.safetensors", Identity("vit", "vit"), "run")
    with pytest.raises(PowerCutError):
        choose_units(vit, COUNTS, nudge(cut), bookmark)
    seen: list[Stage] = []
    again = choose_units(vit, COUNTS, nudge(seen=seen), bookmark)
    assert [stage.index for stage in seen] == list(range(cut, 3))
    assert (again.plan, again.importance) == (whole.plan, whole.importance)
    assert again.vit.weights_sha256 == whole.vit.weights_sha256


def test_what_cannot_be_reached_is_refused_before_training() -> None:
    with pytest.raises(DepthError, match=r"^attention units \| got 4 \| need at most 3"):
        choose_units(seeded_vit(), ChoiceSettings(attention_units=4), nudge(0))
    with pytest.raises(DepthError, match="activation units"):
        choose_units(seeded_vit(), ChoiceSettings(activation_units=3, keep_activation=(1, 2)), nudge(0))
