"""The interface of runtimes, and models run in parts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from exporter.core.base.errors import UserError
from exporter.core.verify.runner import Feed, PartRunner, TensorInfo
from tests.fakes import NumpyRunner

INPUTS = (
    TensorInfo("images", ("batch", 3, 4), "float32"),
    TensorInfo("keep_02", ("batch", 2), "int64"),
)
OUTPUTS = (TensorInfo("logits", ("batch", 5), "float32"),)


def feed(batch: int = 2) -> dict[str, np.ndarray]:
    return {
        "images": np.zeros((batch, 3, 4), np.float32),
        "keep_02": np.zeros((batch, 2), np.int64),
    }


def logits(arrays: Feed) -> dict[str, np.ndarray]:
    return {"logits": np.zeros((len(arrays["images"]), 5), np.float32)}


def runner(function: Callable[[Feed], dict[str, np.ndarray]] = logits) -> NumpyRunner:
    return NumpyRunner(function, INPUTS, OUTPUTS, name="model")


@pytest.mark.parametrize("batch", [1, 3])
def test_a_dynamic_dimension_takes_any_size(batch: int) -> None:
    with runner() as model:
        assert model.run(feed(batch))["logits"].shape == (batch, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"extra": np.zeros(1)},
            "model: input names | got extra, images, keep_02 | need images, keep_02",
        ),
        (
            {"images": np.zeros((2, 3, 4))},
            "got float64[2, 3, 4] | need float32[batch, 3, 4]",
        ),
        (
            {"images": np.zeros((2, 3, 4), ">f4")},
            "got >f4[2, 3, 4] | need float32[batch, 3, 4]",
        ),
        (
            {"images": np.zeros((2, 12), np.float32)},
            "got float32[2, 12] | need float32[batch, 3, 4]",
        ),
        (
            {"images": np.zeros((2, 4, 3), np.float32)},
            "got float32[2, 4, 3] | need float32[batch, 3, 4]",
        ),
        ({"images": [[0.0]]}, "model: input images | got a list | need a NumPy array"),
        (
            {"keep_02": np.zeros((1, 2), np.int64)},
            "got int64[1, 2] | need int64[batch, 2] | where batch=2",
        ),
    ],
)
def test_a_wrong_feed_is_one_line(change: dict[str, Any], message: str) -> None:
    with runner() as model, pytest.raises(UserError) as caught:
        model.run({**feed(), **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({}, "model: output names | got none | need logits"),
        (
            {"logits": np.zeros((2, 4), np.float32)},
            "got float32[2, 4] | need float32[batch, 5]",
        ),
        ({"logits": np.zeros((2, 5))}, "got float64[2, 5] | need float32[batch, 5]"),
        (
            {"logits": np.zeros((1, 5), np.float32)},
            "need float32[batch, 5] | where batch=2",
        ),
    ],
)
def test_what_comes_out_is_checked_as_well(
    results: dict[str, np.ndarray], message: str
) -> None:
    with runner(lambda _: results) as model, pytest.raises(UserError) as caught:
        model.run(feed())
    assert message in str(caught.value)


def test_an_unnamed_dimension_binds_nothing() -> None:
    inputs = (TensorInfo("a", ("",), "int64"), TensorInfo("b", ("",), "int64"))
    with NumpyRunner(lambda _: {}, inputs, (), name="model") as model:
        assert model.run({"a": np.zeros(1, np.int64), "b": np.zeros(2, np.int64)}) == {}


def test_it_runs_only_inside_with() -> None:
    model = runner()
    with pytest.raises(RuntimeError, match="inside `with`"):
        model.run(feed())


def test_entering_twice_loads_once_and_the_last_to_leave_frees() -> None:
    model = runner()
    with model:
        with model:
            pass
        assert model.active
        model.run(feed())
    assert (model.activations, model.deactivations, model.active) == (1, 1, False)


def test_an_error_inside_with_frees_the_model() -> None:
    model = runner()
    with pytest.raises(UserError), model:
        model.run({})
    assert model.deactivations == 1


IMAGES = TensorInfo("images", ("batch", 2), "float32")
KEEP = TensorInfo("keep_01", ("batch", ""), "int64")


def largest_of(seen: list[int]) -> NumpyRunner:
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
    inner = largest_of(seen)
    with PartRunner(inner, (1, 8)) as parts:
        found = parts.run({"images": images})["keep_01"]
        assert parts.name == inner.name
        assert parts.inputs == (IMAGES,)
        assert parts.outputs == (KEEP,)
    assert seen == [8, 8, 1, 1, 1, 1]
    np.testing.assert_array_equal(found.sum(axis=1), np.arange(1, 21))
    assert found.shape == (20, 20)
    assert (inner.activations, inner.deactivations) == (1, 1)


def test_a_batch_that_no_parts_make() -> None:
    with (
        PartRunner(largest_of([]), (4, 8)) as parts,
        pytest.raises(UserError, match=r"got 6 .* a sum of 4, 8"),
    ):
        parts.run({"images": np.ones((6, 2), np.float32)})
