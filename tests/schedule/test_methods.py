"""Methods: which scores and reductions each supports, and what is said of the others."""

import pytest

from exporter.errors import RecipeError
from exporter.schedule.methods import METHODS, check_choices, default_method, default_reduction
from exporter.schedule.reductions import REDUCTIONS
from exporter.schedule.scorers import SCORERS, scorer_named
from exporter.vocabulary import Method


@pytest.mark.parametrize("method", Method)
def test_every_method_has_choices_and_its_defaults_go_together(method: Method) -> None:
    choices = METHODS[method]
    assert set(choices.scorers) <= set(SCORERS) and set(choices.reductions) <= set(REDUCTIONS)
    for scorer in choices.scorers:
        check_choices(method, scorer, default_reduction(method, scorer))


def test_star_where_anything_is_given_that_only_star_uses() -> None:
    assert default_method(None, None, star_alone=False) == Method.TOME
    assert default_method("pairs", "merge", star_alone=False) == Method.TOME
    for scorer, reduction, alone in (("intra", None, False), (None, "drop", False), (None, None, True)):
        assert default_method(scorer, reduction, star_alone=alone) == Method.STAR


def test_star_combines_every_score_with_every_reduction_but_pairs_with_drop() -> None:
    for scorer in SCORERS:
        for reduction, row in REDUCTIONS.items():
            if scorer_named(scorer).pairs and not row.merges:
                with pytest.raises(
                    RecipeError, match=r"drop for the scorer pairs \| need merge \| pairs are"
                ):
                    check_choices(Method.STAR, scorer, reduction)
            else:
                check_choices(Method.STAR, scorer, reduction)


@pytest.mark.parametrize("method", [Method.A_STAR, Method.A_STAR_BATCH])
def test_where_counts_depend_on_the_image_patches_are_dropped(method: Method) -> None:
    for reduction in ("merge", "merge-weighted"):
        message = rf"reduce \| got {reduction} for {method} \| need drop \| its counts depend on the image"
        with pytest.raises(RecipeError, match=message):
            check_choices(method, "fused", reduction)
    with pytest.raises(RecipeError, match=rf"scorer \| got pairs for {method} \| need one of fused, intra"):
        check_choices(method, "pairs", "drop")


def test_tome_merges_pairs() -> None:
    check_choices(Method.TOME, "pairs", "merge")
    with pytest.raises(RecipeError, match=r"reduce \| got drop for tome \| need merge-weighted or merge$"):
        check_choices(Method.TOME, "pairs", "drop")
    with pytest.raises(RecipeError, match=r"scorer \| got fused for tome \| need one of pairs"):
        check_choices(Method.TOME, "fused", "merge")


def test_only_tome_needs_no_acs() -> None:
    assert [method for method, choices in METHODS.items() if not choices.follows_acs] == [Method.TOME]


def test_names_that_are_none() -> None:
    with pytest.raises(RecipeError, match="'melt'"):
        check_choices(Method.STAR, "intra", "melt")
    with pytest.raises(RecipeError, match="'best'"):
        check_choices(Method.STAR, "best", "drop")
