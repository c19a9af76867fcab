"""The authors' count for a batch, on numbers worked out by hand."""

import pytest
import torch

from exporter.ops.cdf_retain.batch_scope import batch_count
from exporter.ops.keep_count import keep_count


@pytest.mark.parametrize(
    ("rows", "mass", "expected"),
    [
        ([[6.0, 2.0, 1.0, 1.0]], 0.7, 1),  # 6, 8, 9, 10: reached at place 1 of one image
        ([[1.0, 6.0, 1.0, 2.0]], 0.95, 3),
        ([[6.0, 2.0, 1.0, 1.0], [6.0, 2.0, 1.0, 1.0]], 0.7, 2),  # 6, 8, 9, 10, 16: place 4 of two images
        ([[1.0, 1.0]], 0.1, 1),
    ],
)
def test_by_hand(rows: list[list[float]], mass: float, expected: int) -> None:
    assert batch_count(torch.tensor(rows), mass) == expected


def test_many_images_tend_to_the_share_of_patches() -> None:
    score = torch.rand(512, 100, generator=torch.Generator().manual_seed(0)) ** 8
    assert batch_count(score, 0.7) == pytest.approx(keep_count(0.7, 100), abs=1)
    assert batch_count(score[:1], 0.7) < 35
