"""Embeddings against a plain loop, and at the ends of their ranges; labels and values number by number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.intervals import wilson
from exporter.core.base.records import Output, Pair
from exporter.core.base.vocabulary import OutputKind
from exporter.measure import likeness
from exporter.measure.likeness import (
    Agreement,
    agreement_of,
    deviations_of,
)
from exporter.report import words


def compared(first: np.ndarray, second: np.ndarray) -> Agreement:
    labels = np.zeros(len(first), np.int64)
    return agreement_of(first.astype(np.float32), second.astype(np.float32), labels)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(0.0, 2.0))
def test_it_is_the_plain_loop(seed: int, images: int, noise: float) -> None:
    generator = np.random.default_rng(seed)
    first = generator.standard_normal((images, 5)).astype(np.float32)
    second = (first + noise * generator.standard_normal(first.shape)).astype(np.float32)
    found = compared(first, second)
    cosines = [cosine(a, b) for a, b in zip(first, second, strict=True)]
    assert found.embedding_cosine == pytest.approx(np.mean(cosines), abs=1e-5)
    assert found.embedding_cosine_least == pytest.approx(min(cosines), abs=1e-5)
    assert found.retrieval is not None
    in_dense_index, in_own_index, common = 0, 0, []
    count = min(10, images - 1)
    for image in range(images):
        dense = nearest(first[image], first, image)
        own = nearest(second[image], second, image)
        in_dense_index += dense[0] == nearest(second[image], first, image)[0]
        in_own_index += dense[0] == own[0]
        common.append(len(set(dense[:count]) & set(own[:count])) / count)
    retrieval = found.retrieval
    assert retrieval.dense_index_at_1 == pytest.approx(in_dense_index / images)
    assert retrieval.dense_index_interval == wilson(in_dense_index, images)
    assert retrieval.reindexed_at_1 == pytest.approx(in_own_index / images)
    assert retrieval.reindexed_interval == wilson(in_own_index, images)
    assert retrieval.reindexed_overlap == pytest.approx(np.mean(common))
    assert (retrieval.nearest, retrieval.precision_at_1 is None) == (count, False)


def nearest(query: np.ndarray, index: np.ndarray, image: int) -> list[int]:
    """The other images, the nearest first."""
    others = [other for other in range(len(index)) if other != image]
    return sorted(others, key=lambda at: -cosine(query, index[at]))


def test_precision_is_the_share_whose_nearest_image_has_their_label() -> None:
    first = np.array([[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]])
    labels = np.array([0, 0, 1, 1])
    second = first[[0, 2, 1, 3]]
    retrieval = agreement_of(first, second, labels).retrieval
    assert retrieval is not None and retrieval.precision_at_1 == Pair(1.0, 0.0)
    retrieval = agreement_of(first, second, np.array([0, 0, 1, -1])).retrieval
    assert retrieval is not None and retrieval.precision_at_1 is None


def test_a_low_cosine_is_said_though_the_mean_is_high(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = np.eye(50)
    second = first.copy()
    compared(first, second)
    assert not caplog.messages
    second[3] = 2 * first[3] + 5 * first[4]
    found = compared(first, second)
    assert found.embedding_cosine > 0.98
    (line,) = caplog.messages
    assert (
        "1 of 50 images" in line
        and f"the lowest {found.embedding_cosine_least:.4f}" in line
    )


def test_an_embedding_of_zeros_agrees_with_nothing() -> None:
    assert compared(np.eye(3), np.zeros((3, 3))).embedding_cosine == 0


def test_one_image_has_no_neighbour() -> None:
    found = compared(np.ones((1, 3)), np.ones((1, 3)))
    assert (found.images, found.retrieval) == (1, None)


def test_parts_of_the_queries_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    first = generator.standard_normal((24, 4))
    second = first + 0.5 * generator.standard_normal(first.shape)
    whole = compared(first, second)
    # Neither all nor none, which a search that finds the image itself would give too.
    assert whole.retrieval is not None and 0.2 < whole.retrieval.dense_index_at_1 < 0.8
    monkeypatch.setattr(likeness, "ROWS", 2)
    assert compared(first, second) == whole


@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.floats(0.0, 2.0))
def test_values_and_labels_are_compared_number_by_number(
    seed: int, images: int, noise: float
) -> None:
    generator = np.random.default_rng(seed)
    scale = np.array([1.0, 50.0, 0.01])
    first = generator.standard_normal((images, 3)) * scale + 5 * scale
    second = first + noise * scale * generator.standard_normal(first.shape)
    values = deviations_of(first, second, Output("values", OutputKind.VALUES, 3))
    for place, number in enumerate(values.numbers):
        ours, theirs = first[:, place], second[:, place]
        mean = sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / images
        assert number.name == f"value {place}"
        assert number.mean_difference == pytest.approx(mean)
        assert number.largest_difference == max(abs(ours - theirs))
        assert number.moved == pytest.approx(mean / ours.std())
        assert number.correlation == pytest.approx(np.corrcoef(ours, theirs)[0, 1])
        assert number.same_side is None
    assert values.is_near == all(number.moved <= 0.1 for number in values.numbers)
    centred, others = first - 5 * scale, second - 5 * scale
    output = Output("labels", OutputKind.LABELS, 3)
    labels = deviations_of(centred, others, output, ("cat", "dog", "hat"))
    for place, number in enumerate(labels.numbers):
        same = int(((centred > 0) == (others > 0))[:, place].sum())
        assert number.name == ("cat", "dog", "hat")[place]
        assert (number.same_side, number.mean_difference) == (same / images, None)
        assert number.same_side_interval == wilson(same, images)


def test_numbers_that_move_are_warned_of_and_listed_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = np.random.default_rng(0).standard_normal((40, 8))
    second = first.copy()
    output = Output("values", OutputKind.VALUES, 8)
    assert deviations_of(first, second, output).is_near and not caplog.text
    second[:, 6] += 3
    values = deviations_of(first, second, output)
    assert not values.is_near
    assert values.by_movement[0].name == "value 6"
    assert "value 6 is not what the dense model says" in caplog.text
    assert next(iter(words.likeness(values).rows)) == "value 6"


def test_without_a_deviation_nothing_is_told_in_its_units() -> None:
    """Of one image, or of a head that says the same of all."""
    output = Output("values", OutputKind.VALUES, 1)
    one = deviations_of(np.array([[3.0]]), np.array([[4.0]]), output)
    said = words.likeness(one)
    assert said.value.startswith("unknown")
    assert "correlation none" in said.rows["value 0"]
    same = deviations_of(np.array([[3.0]]), np.array([[3.0]]), output)
    assert same.is_near and words.likeness(same).value == "0.00% (largest 0.00%)"
