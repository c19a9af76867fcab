"""An interval that is too wide is refused, with the number of images that would do."""

import re
from dataclasses import replace

import pytest

from exporter.core.base.errors import ImageError
from exporter.core.base.intervals import half_width, loss_interval, wilson
from exporter.jobs.evaluate import Evaluation, ModelResult, require_within
from exporter.measure.accuracy import Accuracy
from exporter.measure.likeness import Agreement, Retrieval
from exporter.measure.loss import PairResult

MODEL = ModelResult(
    "m.onnx", "onnxruntime", 32, Accuracy.of(top1_hits=320, top5_hits=400, images=400)
)
ALONE = Evaluation({"m": MODEL}, None, 400, {}, 10, {})
PAIR = PairResult("a", "b", 400, 0.95, wilson(380, 400), lost=12, gained=8)
BOTH = replace(ALONE, pair=PAIR)
UNLABELLED = replace(ALONE, pair=replace(PAIR, lost=None, gained=None))

RETRIEVAL = Retrieval(1.0, (0.99, 1.0), 0.95, wilson(380, 400), 0.9, 10)
TOWERS = replace(ALONE, agreement=Agreement(400, 0.99, 0.9, RETRIEVAL))

WIDTHS = {
    "the same nearest image": (TOWERS, 100 * half_width(wilson(380, 400))),
    "top-1": (ALONE, 100 * half_width(wilson(320, 400))),
    "the loss": (BOTH, 100 * half_width(loss_interval(12, 8, 400))),
    "the agreement": (UNLABELLED, 100 * half_width(wilson(380, 400))),
}


def test_its_repr_is_one_short_line() -> None:
    two = replace(BOTH, models={"a": MODEL, "b": replace(MODEL, accuracy=None)})
    assert repr(two) == "<Evaluation of 400 images: a 80.00%, b>"


@pytest.mark.parametrize("what", WIDTHS)
def test_wide_enough_passes_and_narrower_is_one_line(what: str) -> None:
    result, width = WIDTHS[what]
    require_within(result, width + 1e-6)
    with pytest.raises(
        ImageError, match=rf"--within \| got {what} within ± .* on 400 images"
    ) as error:
        require_within(result, width / 2)
    assert "\n" not in str(error.value)


def test_so_many_images_would_do() -> None:
    with pytest.raises(ImageError) as error:
        require_within(ALONE, 1.0)
    (told,) = re.findall(r"about ([\d,]+) images", str(error.value))
    enough = int(told.replace(",", ""))
    assert (
        half_width(wilson(0.8 * enough, enough))
        <= 0.01
        < half_width(wilson(0.8 * (enough - 1), enough - 1))
    )
    counted = Accuracy.of(
        top1_hits=round(0.8 * enough), top5_hits=enough, images=enough
    )
    more = replace(MODEL, accuracy=counted)
    require_within(replace(ALONE, models={"m": more}, images=enough), 1.001)
