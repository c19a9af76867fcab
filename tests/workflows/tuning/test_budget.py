"""What comes last is reserved, fewer finalists are timed in a short time, and what cannot be done is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import RecipeError
from exporter.workflows.tuning.budget import Budget

SECONDS = st.floats(1e-4, 1e4)
BUDGET = Budget(
    total_s=600.0,
    spent_s=50.0,
    image_s=0.01,
    model_s=5.0,
    targets=2,
    final_images=500,
    wanted=4,
    low_precision=True,
)


def test_the_whole_time_is_shared_out() -> None:
    # 9 models on 2 targets; 1,500 images of two models, and 3 models.
    assert (BUDGET.finalists, BUDGET.timing_s, BUDGET.judged_s) == (4, 90.0, 45.0)
    assert BUDGET.points_until_s == 555.0
    assert BUDGET.accuracy_until_s() == 465.0
    # Two candidates of low precision are measured on as many images.
    assert BUDGET.accuracy_until_s(1000) == 445.0
    assert replace(BUDGET, low_precision=False).accuracy_until_s(1000) == 465.0


@given(total_s=SECONDS, model_s=SECONDS, targets=st.integers(1, 9), wanted=st.integers(1, 20))
def test_finalists_take_at_most_their_share_of_the_time_but_for_one(
    total_s: float, model_s: float, targets: int, wanted: int
) -> None:
    budget = replace(BUDGET, total_s=total_s, model_s=model_s, targets=targets, wanted=wanted)
    assert 1 <= budget.finalists <= wanted
    left_s = budget.points_until_s - budget.spent_s
    assert budget.finalists == 1 or budget.timing_s <= 0.4 * left_s * (1 + 1e-9)


def test_too_little_time_is_refused_with_what_would_do() -> None:
    replace(BUDGET, spent_s=400.0).check(64)
    short = replace(BUDGET, total_s=60.0, spent_s=10.0)
    with pytest.raises(RecipeError, match=r"minutes \| got 1 \| need at least (\S+) for one") as error:
        short.check(64)
    enough = float(str(error.value).split("at least ")[1].split()[0])
    replace(short, total_s=60.0 * 1.1 * enough).check(64)
