import numpy as np
import pytest

from exporter.errors import ImageError, UserError
from exporter.evaluation.accuracy import Accuracy, evaluate, predict, top_classes
from exporter.runtimes.base import TensorInfo
from tests.fakes import NumpyRunner


def echo(classes: int) -> NumpyRunner:
    """Its logits are its images."""
    inputs = (TensorInfo("images", ("batch", classes), "float32"),)
    outputs = (TensorInfo("logits", ("batch", classes), "float32"),)
    return NumpyRunner(lambda feed: {"logits": feed["images"]}, inputs, outputs)


def test_hits_are_counted_over_batches_of_any_size() -> None:
    logits = np.array([[9, 1, 2, 3, 4, 5], [0, 9, 8, 7, 6, 5], [9, 8, 7, 6, 5, 0]], np.float32)
    labels = np.array([0, 5, 5])
    batches = [(logits[:1], labels[:1]), (logits[1:], labels[1:])]
    assert evaluate(echo(6), batches) == Accuracy.of(images=3, top1_hits=1, top5_hits=2)


def test_predictions_are_kept_image_by_image() -> None:
    logits = np.array([[9, 1, 2], [0, 9, 8], [9, 8, 7]], np.float32)
    labels = np.array([0, 2, 2])
    found = predict(echo(3), [(logits[:2], labels[:2]), (logits[2:], labels[2:])])
    assert found.best.tolist() == [[0, 2, 1], [1, 2, 0], [0, 1, 2]]
    assert found.labels.tolist() == labels.tolist()
    assert found.hits[:, 0].tolist() == [True, False, False]
    assert found.accuracy == Accuracy.of(images=3, top1_hits=1, top5_hits=3)


def test_top5_of_three_classes_is_top3() -> None:
    logits = np.array([[3, 2, 1]], np.float32)
    assert evaluate(echo(3), [(logits, np.array([2]))]) == Accuracy.of(images=1, top1_hits=0, top5_hits=1)


@pytest.mark.parametrize("classes", [7, 1000])
def test_equal_logits_go_to_the_lower_class(classes: int) -> None:
    alternating = np.arange(classes, dtype=np.float32)[None] % 2
    assert top_classes(alternating, 3).tolist() == [[1, 3, 5]]
    logits = np.zeros((1, 7), np.float32)
    assert evaluate(echo(7), [(logits, np.array([0]))]).top1 == 1
    assert evaluate(echo(7), [(logits, np.array([5]))]).top5 == 0


@pytest.mark.parametrize("labels", [[6], [-1], [0.0], [[0]], [0, 1]])
def test_a_label_that_is_no_class_is_one_line(labels: list[object]) -> None:
    with pytest.raises(ImageError, match="labels"):
        evaluate(echo(6), [(np.zeros((1, 6), np.float32), np.array(labels))])


def test_no_image_is_an_error() -> None:
    for batches in ([], [(np.zeros((0, 6), np.float32), np.zeros(0, int))]):
        with pytest.raises(ImageError, match="got no image"):
            evaluate(echo(6), batches)


def test_nan_logits_are_no_answer() -> None:
    with pytest.raises(UserError, match="NaN"):
        evaluate(echo(6), [(np.full((1, 6), np.nan, np.float32), np.array([0]))])


def test_the_runner_is_freed() -> None:
    runner = echo(6)
    evaluate(runner, [(np.zeros((1, 6), np.float32), np.array([0]))])
    assert (runner.activations, runner.deactivations) == (1, 1)
