"""Recorded answers, in any order and batch."""

from typing import Any

import numpy as np
import pytest

from exporter.core.base.errors import ParityError, UserError
from exporter.core.verify.playback_runner import PlaybackRunner

IMAGES = np.random.default_rng(0).standard_normal((5, 3, 4, 4)).astype(np.float32)
REFERENCE: dict[str, np.ndarray[Any, Any]] = {
    "images": IMAGES,
    "logits": np.arange(10, dtype=np.float32).reshape(5, 2),
    "dense_logits": -np.arange(10, dtype=np.float32).reshape(5, 2),
    "keep_02": np.arange(10).reshape(5, 2),
    "score_02": np.zeros((5, 6), np.float32),
    "into_02": np.zeros((5, 6), np.int64),
    "gap_02": np.zeros((5, 6), np.float32),
}


def test_each_image_gets_its_own_answer() -> None:
    order = [4, 0, 0]
    with PlaybackRunner(REFERENCE) as runner:
        answers = runner.run({"images": IMAGES[order]})
    assert set(answers) == REFERENCE.keys() - {"images", "dense_logits"}
    np.testing.assert_array_equal(answers["keep_02"], REFERENCE["keep_02"][order])


def test_the_dense_model_has_logits_alone() -> None:
    with PlaybackRunner(REFERENCE, dense=True) as runner:
        np.testing.assert_array_equal(
            runner.run({"images": IMAGES[1:2]})["logits"],
            REFERENCE["dense_logits"][1:2],
        )


def test_sizes_that_follow_the_images_have_no_name() -> None:
    fixed = PlaybackRunner(REFERENCE)
    free = PlaybackRunner({**REFERENCE, "count_02": np.full(5, 2)})
    assert [str(output) for output in fixed.outputs][1] == "keep_02 int64[batch, 2]"
    assert [str(output) for output in free.outputs][1] == "keep_02 int64[batch, ?]"
    assert str(free.outputs[0]) == "logits float32[batch, 2]"


def test_an_image_that_was_not_recorded() -> None:
    with (
        PlaybackRunner(REFERENCE) as runner,
        pytest.raises(ParityError, match="not recorded"),
    ):
        runner.run({"images": IMAGES[:1] + 1})


@pytest.mark.parametrize("name", ["logits", "score_02"])
def test_an_answer_that_is_missing_or_short(name: str) -> None:
    without = {key: value for key, value in REFERENCE.items() if key != name}
    for broken in (without, {**REFERENCE, name: REFERENCE[name][:3]}):
        with pytest.raises(UserError, match=f"got {name} of"):
            PlaybackRunner(broken)


@pytest.mark.parametrize("name", ["images", "logits", "score_02"])
def test_a_single_number_in_the_place_of_an_array(name: str) -> None:
    with pytest.raises(ParityError, match=r"of 0 images|of all 0"):
        PlaybackRunner({**REFERENCE, name: np.array(1.0, np.float32)})
