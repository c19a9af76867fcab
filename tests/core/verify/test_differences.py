"""The numbers of each image."""

import numpy as np
import pytest

from exporter.core.base.errors import ParityError
from exporter.core.base.records import Output
from exporter.core.base.vocabulary import OutputKind
from exporter.core.verify.differences import (
    Spread,
    agreements,
    check_shapes,
    distance,
    finite,
    own_values,
)

LOGITS = Output("logits", OutputKind.LOGITS, 8)
EMBEDDING = Output("embedding", OutputKind.EMBEDDING, 2)
TOKENS = Output("tokens", OutputKind.TOKENS, 2)


def tokens(
    values: list[list[list[float]]], positions: list[list[int]], counts: list[int]
) -> dict[str, np.ndarray]:
    return {
        "tokens": np.array(values),
        "tokens_positions": np.array(positions),
        "tokens_count": np.array(counts),
    }


OURS = tokens([[[1, 0], [0, 1], [9, 9]]], [[2, 5, 0]], [2])


def test_logits_agree_in_classes() -> None:
    ours = np.array([[8.0, 7, 6, 5, 4, 3, 2, 1]] * 3)
    theirs = np.array(
        [[9.0, 7, 6, 5, 4, 3, 2, 1], [7, 8, 6, 5, 4, 3, 2, 1], [8, 7, 6, 5, 1, 2, 3, 4]]
    )
    told = agreements(LOGITS, {"logits": ours}, {"logits": theirs})
    assert told["top1"].tolist() == [1.0, 0.0, 1.0]
    assert told["top5"].tolist() == [1.0, 1.0, 0.8]
    differences = distance(LOGITS, {"logits": ours}, {"logits": theirs})
    assert differences.tolist() == [[1.0], [1.0], [3.0]]


def test_embeddings_agree_in_direction() -> None:
    ours = {"embedding": np.array([[1.0, 0], [1, 0], [0, 0]])}
    theirs = {"embedding": np.array([[5.0, 0], [0, 2], [0, 0]])}
    assert agreements(EMBEDDING, ours, theirs)["cosine"].tolist() == [1.0, 0.0, 0.0]
    assert distance(EMBEDDING, ours, theirs).tolist() == [[4.0], [2.0], [0.0]]


def test_tokens_are_matched_by_position_and_padding_is_not_read() -> None:
    theirs = tokens([[[0, 1], [1, 0.5], [-7, np.nan]]], [[5, 2, 1]], [2])
    assert distance(TOKENS, OURS, theirs).tolist() == [[0.5]]
    assert finite(TOKENS, theirs).tolist() == [True]
    assert agreements(TOKENS, OURS, theirs)["cosine"][0] == pytest.approx(
        1 / np.sqrt(1.25)
    )
    assert own_values(TOKENS, OURS).tolist() == [[1, 0, 0, 1]]


def test_other_positions_are_infinitely_far() -> None:
    other = tokens([[[1, 0], [0, 1], [0, 0]]], [[2, 6, 0]], [2])
    assert distance(TOKENS, OURS, other).tolist() == [[np.inf]]
    assert agreements(TOKENS, OURS, other)["cosine"].tolist() == [1.0]
    nowhere = tokens([[[1, 0], [0, 1], [0, 0]]], [[3, 6, 0]], [2])
    assert agreements(TOKENS, OURS, nowhere)["cosine"].tolist() == [-1.0]


def test_a_token_of_an_images_own_has_to_be_finite() -> None:
    broken = tokens([[[1, np.nan], [0, 1], [9, 9]]], [[2, 5, 0]], [2])
    assert finite(TOKENS, broken).tolist() == [False]
    assert finite(LOGITS, {"logits": np.array([[1.0, np.inf], [0, 1]])}).tolist() == [
        False,
        True,
    ]


def test_shapes_that_cannot_stand_beside_each_other() -> None:
    fewer = tokens([[[1, 0]]], [[2]], [1])
    check_shapes("m", TOKENS, fewer, OURS)
    with pytest.raises(ParityError, match="m: logits"):
        check_shapes(
            "m", LOGITS, {"logits": np.zeros((2, 3))}, {"logits": np.zeros((2, 4))}
        )
    with pytest.raises(ParityError, match="m: tokens"):
        check_shapes("m", TOKENS, tokens([[[1]]], [[2]], [1]), OURS)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_spread_of_batches_is_that_of_all(offset: float) -> None:
    values = np.random.default_rng(0).standard_normal(1000) + offset
    spread = Spread()
    for part in np.split(values, [3, 10, 500]):
        spread.add(part[None])
    assert spread.std == pytest.approx(values.std(), rel=1e-9)


def test_each_value_has_a_unit_and_other_numbers_share_one() -> None:
    numbers = np.array([[1000.0, 0.001], [2000.0, 0.002]])
    other = numbers + np.array([0.0, 0.001])
    for kind in OutputKind:
        output = Output(kind, kind, 2)
        if kind == OutputKind.TOKENS:
            continue
        alone = kind == OutputKind.VALUES
        spread = Spread(output.units)
        spread.add(own_values(output, {kind: numbers}))
        assert len(spread.std) == (2 if alone else 1)
        expected = numbers.std(0) if alone else [numbers.std()]
        assert spread.std.tolist() == pytest.approx(expected)
        differences = distance(output, {kind: other}, {kind: numbers})
        expected = [[0.0, 0.001]] * 2 if alone else [[0.001]] * 2
        assert differences == pytest.approx(np.array(expected), rel=1e-4)


def test_what_fp32_rounds_of_a_value_is_no_difference() -> None:
    output = Output("values", OutputKind.VALUES, 1)
    year = np.full((3, 1), 1.7e9, np.float32)
    rounded = np.nextafter(year, np.float32(np.inf))
    assert not distance(output, {"values": rounded}, {"values": year}).any()
    assert distance(output, {"values": year + 5000}, {"values": year}).all()
