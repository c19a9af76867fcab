"""A batch of any size, in parts of the sizes that a model takes."""

from typing import Any

import numpy as np
import pytest

from exporter.errors import UserError
from exporter.runtimes.base import Feed, TensorInfo
from exporter.runtimes.part_runner import PartRunner
from tests.fakes import NumpyRunner

IMAGES = TensorInfo("images", ("batch", 2), "float32")
KEEP = TensorInfo("keep_01", ("batch", ""), "int64")


def runner(seen: list[int]) -> NumpyRunner:
    """Its answer is as wide as the largest image of the batch, as a-STAR's survivors are."""

    def answer(feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        images = feed["images"]
        seen.append(len(images))
        width = int(images.max())
        return {"keep_01": np.where(np.arange(width) < images[:, :1], 1, 0)}

    return NumpyRunner(answer, (IMAGES,), (KEEP,))


def test_the_largest_parts_first() -> None:
    seen: list[int] = []
    images = np.repeat(np.arange(1, 21, dtype=np.float32)[:, None], 2, axis=1)
    inner = runner(seen)
    with PartRunner(inner, (1, 8)) as parts:
        found = parts.run({"images": images})["keep_01"]
        assert (parts.name, parts.inputs, parts.outputs) == (inner.name, (IMAGES,), (KEEP,))
    assert seen == [8, 8, 1, 1, 1, 1]
    np.testing.assert_array_equal(found.sum(axis=1), np.arange(1, 21))
    assert found.shape == (20, 20)
    assert (inner.activations, inner.deactivations) == (1, 1)


def test_a_batch_that_no_parts_make() -> None:
    with PartRunner(runner([]), (4, 8)) as parts, pytest.raises(UserError, match=r"got 6 .* a sum of 4, 8"):
        parts.run({"images": np.ones((6, 2), np.float32)})
