"""The images that a report shows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exporter.measure.accuracy import Predictions
from exporter.report.examples import Example, chosen_examples

SOME = st.lists(
    st.tuples(st.integers(-1, 4), st.integers(0, 4), st.integers(0, 4)),
    min_size=1,
    max_size=60,
)


def predictions(*columns: np.ndarray) -> list[Predictions]:
    labels, *best = columns
    return [Predictions(each[:, None], labels) for each in best]


def chosen(
    names: list[str], rows: list[tuple[int, int, int]], count: int
) -> tuple[Example, ...]:
    dense, pruned = predictions(*np.array(rows).T)
    (shown,) = chosen_examples(names, dense, [pruned], count)
    return shown


def test_several_models_show_the_same_images_and_any_disagreement_comes_first() -> None:
    labels = np.zeros(6, np.int64)
    first, second = labels.copy(), labels.copy()
    first[4], second[2] = 1, 1
    dense, *pruned = predictions(labels, labels, first, second)
    shown = chosen_examples(list("abcdef"), dense, pruned, 4)
    assert [[each.image for each in one] for one in shown] == [list("ceab")] * 2
    assert [[each.differs for each in one] for one in shown] == [
        ["", "lost", "", ""],
        ["lost", "", "", ""],
    ]


@given(SOME, st.integers(1, 12))
def test_disagreements_come_first_and_take_at_most_half(
    rows: list[tuple[int, int, int]], count: int
) -> None:
    names = [f"{at}.png" for at in range(len(rows))]
    shown = chosen(names, rows, count)
    assert len(shown) == len({each.image for each in shown}) == min(count, len(rows))
    differing = [bool(each.differs) for each in shown]
    assert differing == sorted(differing, reverse=True)
    agreeing = sum(dense == pruned for _, dense, pruned in rows)
    assert sum(differing) <= max(count // 2, count - agreeing)
    for each in shown:
        label, *classes = rows[names.index(each.image)]
        assert (each.label, each.dense, each.pruned) == (
            None if label < 0 else label,
            *classes,
        )


def test_a_difference_is_lost_or_won_or_neither_is_right() -> None:
    known = {(0, 0): "", (0, 1): "lost", (1, 0): "won", (1, 2): "differs", (1, 1): ""}
    for (dense, pruned), outcome in known.items():
        assert Example("a.png", 0, dense, pruned).differs == outcome
    assert Example("a.png", None, 0, 1).differs == "differs"


def test_every_class_has_its_turn_before_any_has_two() -> None:
    rows = [(0, 0, 0)] * 20 + [(number, number, number) for number in range(1, 10)]
    shown = chosen([str(at) for at in range(29)], rows, 12)
    assert sorted(each.label or 0 for each in shown[:10]) == list(range(10))
    assert [each.label for each in shown[10:]] == [0, 0]


def test_without_labels_the_dense_classes_are_the_strata() -> None:
    rows = [(-1, 0, 0)] * 5 + [(-1, 1, 1)]
    shown = chosen(list("abcdef"), rows, 2)
    assert {each.dense for each in shown} == {0, 1}
    assert all(each.label is None for each in shown)
