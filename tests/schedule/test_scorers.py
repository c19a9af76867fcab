"""Scorers are rows: what each reads, and what is said of one that is none."""

import numpy as np
import pytest

from exporter.errors import RecipeError
from exporter.formats.canonical_json import from_json, to_json
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.plan import ScheduleSettings, manual_schedule
from exporter.schedule.scorers import FUSED, INTER, INTRA, PAIRS, RANDOM, SCORERS, scorer_named
from tests.vits import make_vit


def test_weights() -> None:
    assert [each.weight(0.3) for each in (FUSED, INTRA, INTER, RANDOM, PAIRS)] == [0.3, 1.0, 0.0, 0.0, 1.0]
    assert [each.name for each in SCORERS.values() if each.calibrated] == ["fused", "inter"]
    assert [each.name for each in SCORERS.values() if each.pairs] == ["pairs"]


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_table_is_held_only_where_it_is_read(scorer: str) -> None:
    vit = make_vit("vit" if scorer == "intra" else "pooled by attention")
    spec, reduce = vit.spec, "merge" if scorer_named(scorer).pairs else "drop"
    schedule = manual_schedule(spec, {2: 0.5}, ScheduleSettings(scorer, reduce=reduce))
    inter = np.full((spec.depth, spec.num_patches), 0.5) if scorer_named(scorer).calibrated else None
    pruned = PrunedViT(vit, schedule, inter)
    assert bool(list(pruned.buffers(recurse=False))) == (scorer in ("fused", "inter", "random"))


def test_one_that_is_none_is_refused_everywhere(tiny_vit: PrunableViT) -> None:
    known = "one of fused, intra, inter, random"
    with pytest.raises(RecipeError, match=known):
        scorer_named("attention")
    with pytest.raises(RecipeError, match=known):
        ScheduleSettings(scorer="attention")
    good = manual_schedule(tiny_vit.spec, {2: 0.5}, ScheduleSettings("intra", reduce="drop"))
    evil = from_json(type(good), to_json(good).replace('"intra"', '"attention"'), source="test")
    with pytest.raises(RecipeError, match=known):
        PrunedViT(tiny_vit, evil)
