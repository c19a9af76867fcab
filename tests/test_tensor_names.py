"""Names of tensors, and the way back from them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.tensor_names import (
    VARIANTS,
    class_row_name,
    context_name,
    count_name,
    keep_layers,
    keep_name,
    ranked_name,
    rows_of,
    score_name,
    tokens_name,
    variant_path,
)

NAMES = (keep_name, count_name, score_name, tokens_name, class_row_name, context_name, ranked_name)


def test_layers_are_numbered_from_one_with_two_digits() -> None:
    assert (keep_name(3), count_name(3), score_name(12)) == ("keep_03", "count_03", "score_12")
    assert keep_name(120) == "keep_120"


def test_no_two_names_meet() -> None:
    names = [name(layer) for name in NAMES for layer in range(1, 130)]
    names += [rows_of(keep_name(layer)) for layer in range(1, 130)]
    assert len(set(names)) == len(names)


def test_layers_come_back_from_names_in_order() -> None:
    names = ["logits", "score_01", "keep_12", ranked_name(3), "keep_05", "keep_", "keep_x", "count_02"]
    assert keep_layers(names) == (3, 5, 12)
    assert keep_layers([]) == ()


@pytest.mark.parametrize("name", [keep_name, ranked_name])
def test_rows_stand_for_patches_or_tokens_alike(name: Callable[[int], str]) -> None:
    assert rows_of(name(4)) == "keep_04/rows"


def test_a_variant_lies_beside_its_model() -> None:
    assert [variant_path(Path("a/vit.star.onnx"), role) for role in VARIANTS] == [
        Path("a/vit.star.tracing.onnx"),
        Path("a/vit.star.forced.onnx"),
    ]
