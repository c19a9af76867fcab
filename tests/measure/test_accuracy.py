"""Models run over images, and their accuracy."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from exporter.core.base.errors import UserError
from exporter.core.base.intervals import wilson
from exporter.core.verify.differences import top_classes
from exporter.core.verify.runner import Feed, TensorInfo
from exporter.measure.accuracy import Accuracy, Predictions, answer_each, predict_each
from tests.fakes import NumpyRunner

INFO = TensorInfo("images", ("batch", 2), "float32")


def times(factor: float, asked: list[tuple[float, int]]) -> NumpyRunner:
    """Gives its images times a factor, and notes the factor and how many it was given."""

    def run(feed: Feed) -> dict[str, np.ndarray]:
        asked.append((factor, len(feed["images"])))
        return {"scaled": feed["images"] * np.float32(factor)}

    return NumpyRunner(run, (INFO,), (TensorInfo("scaled", ("batch", 2), "float32"),))


def first_column(values: np.ndarray) -> np.ndarray:
    return values[:, :1]


@pytest.mark.parametrize("size", [0, 4])
def test_rows_are_in_the_order_of_the_images_whatever_the_batch(size: int) -> None:
    """Two models see every batch once, in turns."""
    images = np.arange(10, dtype=np.float32).reshape(5, 2)
    labels = np.arange(5)
    asked = list[tuple[float, int]]()
    runners = [times(1, asked), times(10, asked)]
    batches = [
        ((images[at], images[at] + 1), labels[at]) for at in (slice(0, 3), slice(3, 5))
    ]
    (one, ten), found = answer_each(
        runners, batches, ["scaled"] * 2, first_column, size=size
    )
    assert one[:, 0].tolist() == [0, 2, 4, 6, 8]
    assert ten[:, 0].tolist() == [10, 30, 50, 70, 90]
    assert found.tolist() == labels.tolist()
    first, second = (size, size) if size else (3, 2)
    assert asked == [(1, first), (10, first), (1, second), (10, second)]
    assert [runner.deactivations for runner in runners] == [1, 1]


def test_what_cannot_be_measured_is_one_line() -> None:
    image, label = np.zeros((1, 2), np.float32), np.array([0])
    with pytest.raises(UserError, match=r"got the outputs scaled \| need logits"):
        answer_each([times(1, [])], [((image,), label)], ["logits"], first_column)
    with pytest.raises(UserError, match=r"scaled .* NaN"):
        answer_each([times(np.nan, [])], [((image,), label)], ["scaled"], first_column)


def echo(classes: int) -> NumpyRunner:
    """Its logits are its images."""
    inputs = (TensorInfo("images", ("batch", classes), "float32"),)
    outputs = (TensorInfo("logits", ("batch", classes), "float32"),)
    return NumpyRunner(lambda feed: {"logits": feed["images"]}, inputs, outputs)


def predict(
    runner: NumpyRunner, batches: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Predictions:
    (found,) = predict_each(
        [runner], [((images,), labels) for images, labels in batches]
    )
    return found


def test_predictions_are_kept_image_by_image() -> None:
    logits = np.array([[9, 1, 2], [0, 9, 8], [9, 8, 7]], np.float32)
    labels = np.array([0, 2, 2])
    found = predict(echo(3), [(logits[:2], labels[:2]), (logits[2:], labels[2:])])
    assert found.best.tolist() == [[0, 2, 1], [1, 2, 0], [0, 1, 2]]
    assert found.labels.tolist() == labels.tolist()
    assert found.hits[:, 0].tolist() == [True, False, False]
    assert found.accuracy == Accuracy.of(images=3, top1_hits=1, top5_hits=3)


def test_one_logit_tells_two_classes_apart_by_its_sign() -> None:
    logits = np.array([[-0.5], [0.0], [2.0]], np.float16)
    assert top_classes(logits, 5).tolist() == [[0], [0], [1]]


def test_an_accuracy_holds_its_interval() -> None:
    found = Accuracy.of(top1_hits=90, top5_hits=99, images=100)
    assert (found.top1, found.top5, found.images) == (0.9, 0.99, 100)
    assert found.interval == wilson(90, 100)
    assert found.interval == pytest.approx((0.8256, 0.9448), abs=1e-4)


@given(arrays(np.float32, (4, 9), elements=st.integers(-2, 2)), st.integers(1, 9))
def test_the_best_are_those_of_a_stable_sort(logits: np.ndarray, count: int) -> None:
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    assert top_classes(logits, count).tolist() == expected.tolist()


def test_only_a_subset_of_the_classes_competes() -> None:
    logits = np.array([[9, 1, 8, 2, 3, 0, 4, 5]], np.float32)
    classes = np.array([1, 3, 4])
    (found,) = predict_each([echo(8)], [((logits,), np.array([3]))], classes=classes)
    assert found.best.tolist() == [[4, 3, 1]]
    assert found.accuracy == Accuracy.of(top1_hits=0, top5_hits=1, images=1)
