"""MAC counts against the published ones, and against what torch counts while it runs."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from exporter.models.registry import ModelRequest, describe
from exporter.ops.pair_sets import num_joined
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.macs import dense_macs, pruned_macs, schedule_macs
from exporter.schedule.plan import ScheduleSettings, manual_schedule, star_schedule, tome_schedule
from exporter.vocabulary import Method
from tests.schedule.published import DEIT_B_ACS, DEIT_B_GMACS, DEIT_S_ACS, DEIT_S_GMACS
from tests.vits import FAMILIES, make_vit, random_images


@pytest.mark.parametrize(
    ("name", "gmacs"),
    [("deit_base_patch16_224", 17.564), ("deit_small_patch16_224", 4.599), ("deit_tiny_patch16_224", 1.254)],
)
def test_published_dense_macs(name: str, gmacs: float) -> None:
    macs = dense_macs(describe(ModelRequest(name)).spec)
    assert macs.gmacs == pytest.approx(gmacs, abs=5e-4)
    assert macs.scoring == 0


@pytest.mark.parametrize(
    ("name", "acs", "published"),
    [
        ("deit_base_patch16_224", DEIT_B_ACS, DEIT_B_GMACS),
        ("deit_small_patch16_224", DEIT_S_ACS, DEIT_S_GMACS),
    ],
)
def test_published_pruned_macs(name: str, acs: list[float], published: dict[float, float]) -> None:
    spec = describe(ModelRequest(name)).spec
    for rho, gmacs in published.items():
        macs = pruned_macs(spec, star_schedule(spec, acs, rho, ScheduleSettings()).keep)
        assert macs.network / 1e9 == pytest.approx(gmacs, abs=0.005)
        assert 0 < macs.scoring < 0.001 * macs.network


@pytest.mark.parametrize(
    ("layers", "rates", "gmacs"),
    [
        ((4, 7, 10), (0.5, 0.25, 0.125), 7.80),
        ((5, 8, 10), (0.7, 0.49, 0.343), 10.96),
        ((4, 7, 10), (0.7, 0.49, 0.343), 10.00),
    ],
)
def test_published_manual_schedules(layers: tuple[int, ...], rates: tuple[float, ...], gmacs: float) -> None:
    spec = describe(ModelRequest("deit_base_patch16_224")).spec
    schedule = manual_schedule(spec, dict(zip(layers, rates, strict=True)), ScheduleSettings())
    assert pruned_macs(spec, schedule.keep).network / 1e9 == pytest.approx(gmacs, abs=0.005)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_closed_form_counts_what_runs(family: str) -> None:
    vit = make_vit(family)
    pruned = PrunedViT(vit, manual_schedule(vit.spec, {1: 0.6, 3: 0.5}, ScheduleSettings("intra")))
    images = random_images(vit, 1)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        pruned(images)
    # The class row is one operator, which the counter does not look into.
    assert counter.get_total_flops() // 2 == pruned.macs.network
    tokens = [vit.spec.num_prefix_tokens + n for n in (vit.spec.num_patches, pruned.schedule.keep[0])]
    fusion = vit.spec.num_patches + pruned.schedule.keep[0]
    assert pruned.macs.scoring == sum(tokens) * vit.spec.dim + fusion


def test_merging_costs_two_products_more() -> None:
    """As torch counts them: the mean over patches is no product there, but one in a lowered model."""
    vit = make_vit("registers")
    settings = ScheduleSettings("intra", reduce="merge")
    pruned = PrunedViT(vit, manual_schedule(vit.spec, {1: 0.6, 3: 0.5}, settings))
    dropped = pruned_macs(vit.spec, pruned.schedule.keep)
    assert pruned.macs.network == dropped.network
    prefix, dim = vit.spec.num_prefix_tokens, vit.spec.dim
    before, expected = vit.spec.num_patches, 0
    for after in (pruned.schedule.keep[0], pruned.schedule.keep[2]):
        tokens = prefix + before
        expected += tokens * dim + tokens * after * dim + tokens * (prefix + after) * dim
        before = after
    assert pruned.macs.scoring - dropped.scoring == expected


@pytest.mark.parametrize("family", ["vit", "distilled", "registers"])
def test_pairs_cost_their_similarities_and_the_means(family: str) -> None:
    """No class row; a product of mean keys, whose length is that of a head."""
    vit = make_vit(family)
    pruned = PrunedViT(vit, tome_schedule(vit.spec, 0.4, ScheduleSettings(method=Method.TOME)))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        pruned(random_images(vit, 1))
    # Pairs and means are one operator each, which the counter does not look into.
    assert counter.get_total_flops() // 2 == pruned.macs.network
    prefix, dim, before, expected = vit.spec.num_prefix_tokens, vit.spec.dim, vit.spec.num_patches, 0
    for after in pruned.schedule.keep:
        joined = num_joined(before, prefix)
        expected += (before - joined) * joined * dim // vit.spec.num_heads
        expected += (prefix + before) * (prefix + after) * dim
        before = after
    assert pruned.macs.scoring == expected


def test_a_schedule_counts_by_its_own_scorer_and_reduction() -> None:
    vit = make_vit()
    scoring = {}
    for scorer, reduce in (
        ("intra", "drop"),
        ("intra", "merge"),
        ("intra", "merge-weighted"),
        ("pairs", "merge"),
    ):
        settings = ScheduleSettings(scorer, reduce=reduce)
        macs = schedule_macs(vit.spec, manual_schedule(vit.spec, {2: 0.5}, settings))
        scoring[scorer, reduce] = macs.scoring
    assert scoring["intra", "drop"] < scoring["pairs", "merge"] < scoring["intra", "merge"]
    assert scoring["intra", "merge"] == scoring["intra", "merge-weighted"]
