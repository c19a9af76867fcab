"""The rows of the passes: called like their files, and those that only make a file faster may be left out."""

import numpy as np
import pytest

from exporter.lowering.pass_table import PASSES
from tests.lowering.models import lowered, run, star
from tests.lowering.targets import without
from tests.vits import random_images

OPTIONAL = (
    *("fold_attention_biases", "shorten_scores", "rank_prefix", "select_early", "sort_once"),
    "linear_as_gemm",
)


@pytest.mark.ort
@pytest.mark.parametrize("left_out", OPTIONAL)
def test_each_pass_may_be_left_out(left_out: str) -> None:
    images = random_images(star().vit, 2).numpy()
    whole, less = (run(lowered(star(), without(*names)), images)["logits"] for names in ((), (left_out,)))
    np.testing.assert_allclose(whole, less, atol=1e-4 * whole.std() + 1e-6)


def test_a_pass_is_called_what_its_file_is_called() -> None:
    for name, each in PASSES.items():
        file = each.run.__module__.rsplit(".", maxsplit=1)[1]
        assert file == ("half_precision" if name in ("to_fp16", "to_bf16") else name)
