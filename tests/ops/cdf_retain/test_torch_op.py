"""The PyTorch operator, and the count of a whole batch."""

import numpy as np
import pytest
import torch

from exporter.ops.cdf_retain.reference import cdf_retain as reference
from exporter.ops.cdf_retain.torch_op import batch_count, cdf_retain
from exporter.ops.counts import keep_count
from tests.ops.cdf_retain.rows import KINDS, score_rows, valid_counts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("patches", [1, 2, 9, 196, 577])
def test_keeps_what_the_reference_keeps(kind: str, patches: int) -> None:
    score = score_rows(kind, 200, patches)
    for mass in (0.1, 0.5, float(np.float32(0.7)), 0.95, 1.0):
        for valid in valid_counts(len(score), patches):
            expected = reference(score, valid, mass)
            got = cdf_retain(torch.from_numpy(score), torch.from_numpy(valid), mass)
            for ours, theirs in zip(got, expected, strict=True):
                np.testing.assert_array_equal(ours.numpy(), theirs)


def test_its_width_is_a_size_that_export_knows_nothing_of() -> None:
    class Keep(torch.nn.Module):
        def forward(self, score: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
            index, count, _ = cdf_retain(score, valid, 0.5)
            return score.gather(1, index).sum(1) + count

    score = torch.rand(3, 8)
    valid = torch.full((3,), 8)
    sizes = ({0: torch.export.Dim("b", max=1024)},) * 2
    program = torch.export.export(Keep(), (score, valid), dynamic_shapes=sizes, strict=False)
    other, fewer = torch.rand(2, 8), torch.tensor([8, 3])
    torch.testing.assert_close(program.module()(other, fewer), Keep()(other, fewer))


def test_the_operator_is_sound() -> None:
    torch.library.opcheck(torch.ops.star.cdf_retain, (torch.rand(3, 8), torch.tensor([8, 3, 1]), 0.5))


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
