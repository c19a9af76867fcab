import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exporter.calibration.redundancy import average_cosine_similarity


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.RandomState(seed).standard_normal(shape))


def pair_by_pair(patches: Tensor) -> float:
    """The definition, over all pairs."""
    count, total = len(patches), 0.0
    for i in range(count):
        for j in range(i + 1, count):
            total += float(torch.nn.functional.cosine_similarity(patches[i], patches[j], dim=0))
    return total / (count * (count - 1) / 2)


@given(st.integers(0, 1000), st.integers(2, 9), st.integers(0, 3))
def test_is_the_mean_over_all_pairs_of_patches(seed: int, count: int, prefix: int) -> None:
    tokens = drawn(seed, 2, prefix + count, 4) + 0.5
    acs = average_cosine_similarity(tokens, prefix)
    expected = [pair_by_pair(image[prefix:]) for image in tokens]
    torch.testing.assert_close(acs, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


def test_prefix_tokens_have_no_part() -> None:
    tokens = drawn(0, 1, 6, 4)
    other = tokens.clone()
    other[:, :2] = 100
    assert torch.equal(average_cosine_similarity(tokens, 2), average_cosine_similarity(other, 2))


def test_a_row_of_zeros_is_like_no_other() -> None:
    tokens = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]])
    assert pytest.approx(1 / 3) == average_cosine_similarity(tokens, 0).item()


def test_one_patch_has_no_pair() -> None:
    assert average_cosine_similarity(torch.ones(1, 2, 3), 1).tolist() == [0.0]


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_huge_and_tiny_rows_have_a_direction_too(scale: float) -> None:
    tokens = torch.full((1, 5, 3), scale, dtype=torch.float64)
    assert pytest.approx(1.0) == average_cosine_similarity(tokens, 0).item()


def test_half_precision_is_computed_in_double() -> None:
    acs = average_cosine_similarity(drawn(3, 2, 7, 4).half(), 1)
    assert acs.dtype == torch.float64
