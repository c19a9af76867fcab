"""The rows of factors, reductions, scorers and methods."""

import pickle
from dataclasses import replace

import pytest

from exporter.core.base.errors import RecipeError
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.checks import check_fits
from exporter.core.schedule.macs import schedule_macs
from exporter.core.schedule.methods import (
    CLASS,
    DROP,
    FUSED,
    MERGE,
    MERGE_WEIGHTED,
    METHODS,
    PAIRS,
    RECEIVED,
    REDUCTIONS,
    SCORERS,
    check_choices,
    check_factor,
    default_reduction,
    scorer_named,
)
from exporter.core.schedule.plan import keep_everything, manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from tests.vits import make_vit


def test_each_scorer_can_be_pickled_with_the_model_that_keeps_it() -> None:
    assert pickle.loads(pickle.dumps(SCORERS)) == SCORERS


@pytest.mark.parametrize(
    ("scorer", "stride", "rows"),
    [
        ("received", 1, 16 + 8),
        ("received", 4, 4 + 2),
        ("fused", 4, 4 + 2),
        ("random", 1, 0),
        ("inter", 1, 0),
    ],
)
def test_a_schedule_counts_the_rows_that_it_reads(
    scorer: str, stride: int, rows: int
) -> None:
    spec = make_vit("pooled").spec
    settings = Prune(scorer, reduce="drop", query_stride=stride)
    macs = schedule_macs(
        spec, manual_schedule(spec, {2: 0.5, 3: 0.5}, resolve(settings))
    )
    fusion = 16 + 8
    tokens = {16 + 8: 16**2 + 8**2, 4 + 2: 4 * 16 + 2 * 8, 0: 0}[rows]
    assert macs.scoring == tokens * 48 + fusion


def test_the_fused_score_reads_the_class_token_where_the_head_does() -> None:
    assert FUSED.factor_of(make_vit().spec) is CLASS
    assert FUSED.factor_of(make_vit("eva02, pooled").spec) is RECEIVED


@pytest.mark.parametrize(
    ("family", "refused"),
    [
        ("vit", {"probe"}),
        ("pooled", {"intra", "probe"}),
        ("eva02, pooled", {"intra", "probe"}),
        ("pooled by attention", {"intra"}),
    ],
)
def test_a_score_needs_what_it_reads(family: str, refused: set[str]) -> None:
    spec = make_vit(family).spec
    for scorer in SCORERS:
        reduce = "merge" if scorer_named(scorer).pairs else "drop"
        settings = Prune(scorer, reduce=reduce)
        if scorer in refused:
            with pytest.raises(
                RecipeError,
                match=rf"scorer \| got {scorer} for tiny, which has no .*received",
            ):
                manual_schedule(spec, {2: 0.5}, resolve(settings))
        else:
            schedule = manual_schedule(spec, {2: 0.5}, resolve(settings))
            check_fits(schedule, spec)
    with pytest.raises(RecipeError, match="one of"):
        check_factor(SCORERS[sorted(refused)[0]], spec)


def test_a_schedule_of_another_model_is_refused_when_it_prunes() -> None:
    with_class, pooled = make_vit().spec, make_vit("pooled").spec
    check_fits(keep_everything(with_class), pooled)
    schedule = manual_schedule(
        with_class, {2: 0.5}, resolve(Prune("intra", reduce="drop"))
    )
    with pytest.raises(RecipeError, match="no class token that the head reads"):
        check_fits(schedule, pooled)


@pytest.mark.parametrize("scorer", ["intra", "inter", "random", "probe", "similarity"])
def test_a_stride_is_for_the_attention_of_all_tokens(scorer: str) -> None:
    with pytest.raises(
        RecipeError, match=rf"query_stride \| got 2 for the scorer {scorer} \| need 1"
    ):
        resolve(Prune(scorer, query_stride=2))
    with pytest.raises(
        RecipeError, match="2 for tiny, whose class token scores its patches"
    ):
        manual_schedule(
            make_vit().spec, {2: 0.5}, resolve(Prune("fused", query_stride=2))
        )
    good = manual_schedule(
        make_vit("pooled by attention").spec, {2: 0.5}, resolve(Prune("received"))
    )
    with pytest.raises(RecipeError, match="query_stride"):
        check_fits(
            replace(good, scorer=scorer, query_stride=2),
            make_vit("pooled by attention").spec,
        )


@pytest.mark.parametrize("method", Method)
def test_every_method_has_choices_and_its_defaults_go_together(method: Method) -> None:
    choices = METHODS[method]
    assert set(choices.scorers) <= set(SCORERS) and set(choices.reductions) <= set(
        REDUCTIONS
    )
    for name in choices.scorers:
        check_choices(method, SCORERS[name], default_reduction(method, SCORERS[name]))


def test_star_combines_every_score_with_every_reduction_but_pairs_with_drop() -> None:
    for scorer in SCORERS.values():
        for reduction in REDUCTIONS.values():
            if scorer.pairs and not reduction.merges:
                with pytest.raises(
                    RecipeError,
                    match=rf"drop for the scorer {scorer.name} \| need merge \| pairs are",
                ):
                    check_choices(Method.STAR, scorer, reduction)
            else:
                check_choices(Method.STAR, scorer, reduction)


def test_where_counts_depend_on_the_image_patches_are_dropped() -> None:
    for reduction in (MERGE, MERGE_WEIGHTED):
        message = rf"reduce \| got {reduction.name} for a-star \| need drop \| its counts depend on the image"
        with pytest.raises(RecipeError, match=message):
            check_choices(Method.A_STAR, FUSED, reduction)
    with pytest.raises(
        RecipeError, match=r"scorer \| got pairs for a-star \| need one of fused, intra"
    ):
        check_choices(Method.A_STAR, PAIRS, DROP)
