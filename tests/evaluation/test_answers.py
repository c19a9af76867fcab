"""Rows of numbers of each image, from every model in turns."""

import numpy as np
import pytest

from exporter.errors import ImageError, UserError
from exporter.evaluation.answers import answer_each, require_images
from exporter.runtimes.base import Feed, TensorInfo
from tests.fakes import NumpyRunner

INFO = TensorInfo("images", ("batch", 2), "float32")


def times(factor: float, sizes: list[int]) -> NumpyRunner:
    """Gives its images times a factor, and notes how many it was given."""

    def run(feed: Feed) -> dict[str, np.ndarray]:
        sizes.append(len(feed["images"]))
        return {"scaled": feed["images"] * np.float32(factor)}

    return NumpyRunner(run, (INFO,), (TensorInfo("scaled", ("batch", 2), "float32"),))


def first_column(name: str, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return values[:, :1] + labels[:, None]


@pytest.mark.parametrize("size", [0, 4])
def test_rows_are_in_the_order_of_the_images_whatever_the_batch(size: int) -> None:
    images, labels, sizes = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(5), list[int]()
    runners = [times(1, sizes), times(10, sizes)]
    batches = [((images[at], images[at] + 1), labels[at]) for at in (slice(0, 3), slice(3, 5))]
    (one, ten), found = answer_each(runners, batches, ["scaled"] * 2, first_column, size=size)
    assert one[:, 0].tolist() == [0, 3, 6, 9, 12]
    assert ten[:, 0].tolist() == [10, 31, 52, 73, 94]
    assert found.tolist() == labels.tolist()
    assert sizes == ([3, 3, 2, 2] if size == 0 else [4] * 4)


def test_what_cannot_be_measured_is_one_line() -> None:
    image, label = np.zeros((1, 2), np.float32), np.array([0])
    with pytest.raises(UserError, match=r"got the outputs scaled \| need logits"):
        answer_each([times(1, [])], [((image,), label)], ["logits"], first_column)
    with pytest.raises(UserError, match=r"scaled .* NaN"):
        answer_each([times(np.nan, [])], [((image,), label)], ["scaled"], first_column)
    with pytest.raises(ImageError, match="labels"):
        answer_each([times(1, [])], [((image,), np.array([0, 1]))], ["scaled"], first_column)
    with pytest.raises(ImageError, match=r"m \| got no image"):
        require_images(answer_each([times(1, [])], [], ["scaled"], first_column)[1], "m")
