"""Closed words: strings wherever they go, and refused with the list of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.core.base.errors import RecipeError
from exporter.core.base.records import BlockMacs, Output
from exporter.core.base.tensor_names import (
    INSTRUMENTED,
    count_name,
    instrumented_path,
    keep_layers,
    keep_name,
    ranked_name,
    score_name,
)
from exporter.core.base.vocabulary import (
    InputKind,
    Layout,
    Method,
    OutputKind,
    Precision,
    Word,
)
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT

KINDS = (Method, Layout, InputKind, Precision)


@pytest.mark.parametrize("word", [word for kind in KINDS for word in kind])
def test_a_word_is_its_string(word: Word) -> None:
    assert type(word).named(word.value) is word
    assert f"{word}" == str(word) == word.value == word
    assert f"{word:>12}" == f"{word.value:>12}"
    assert json.dumps(word) == f'"{word.value}"'


@pytest.mark.parametrize(
    ("kind", "subject"),
    list(zip(KINDS, ("method", "layout", "input kind", "precision"), strict=True)),
)
def test_a_word_that_is_none(kind: type[Word], subject: str) -> None:
    with pytest.raises(RecipeError) as error:
        kind.named("abacus")
    assert (
        str(error.value) == f"{subject} | got 'abacus' | need one of {', '.join(kind)}"
    )


def test_layers_are_numbered_from_one_with_two_digits() -> None:
    assert keep_name(3) == "keep_03"
    assert count_name(3) == "count_03"
    assert score_name(12) == "score_12"
    assert keep_name(120) == "keep_120"


def test_layers_come_back_from_names_in_order() -> None:
    names = [
        "logits",
        "score_01",
        "keep_12",
        ranked_name(3),
        "keep_05",
        "keep_",
        "keep_x",
        "count_02",
    ]
    assert keep_layers(names) == (3, 5, 12)
    assert keep_layers([]) == ()


def test_a_variant_lies_beside_its_model() -> None:
    assert [
        instrumented_path(Path("a/vit.star.onnx"), role) for role in INSTRUMENTED
    ] == [Path("a/vit.star.tracing.onnx"), Path("a/vit.star.forced.onnx")]


def test_layers_with_attention_are_counted_from_1(tiny_vit: PrunableViT) -> None:
    blocks = (BlockMacs(1, 1), BlockMacs(0, 1), BlockMacs(1, 0))
    assert replace(tiny_vit.spec, blocks=blocks).attention_layers == (1, 3)


def test_layers_that_prune_and_their_masses(tiny_vit: PrunableViT) -> None:
    star = manual_schedule(tiny_vit.spec, {2: 0.5, 3: 0.99}, resolve(Prune()))
    assert not star.adaptive
    assert star.pruning_layers == (2,)  # 0.99 of 8 patches is rounded up to 8
    assert star.masses == {}
    adaptive = replace(star, method=Method.A_STAR)
    assert adaptive.adaptive
    assert adaptive.pruning_layers == (2, 3)
    assert adaptive.masses == {2: star.rates[1], 3: star.rates[2]}
    assert adaptive.widths == {"keep_02": star.keep[1], "keep_03": star.keep[2]}


def test_patches_left_are_static_until_an_image_decides(tiny_vit: PrunableViT) -> None:
    rates = {2: 0.5, 4: 0.5}
    for method in Method.STAR, Method.A_STAR:
        schedule = manual_schedule(
            tiny_vit.spec, rates, resolve(Prune("intra", method=method))
        )
        left = [schedule.left_after(layer) for layer in (1, 2, 3, 4, 0)]
        assert left == (
            [16, 8, 8, 4, 4] if method == Method.STAR else [16, None, None, None, None]
        )


def test_numbers_are_classes_or_vectors(tiny_vit: PrunableViT) -> None:
    pooled = Output("pooled", OutputKind.EMBEDDING, 48)
    values = Output("values", OutputKind.VALUES, 3)
    spec = tiny_vit.spec
    assert (spec.num_classes, spec.head_channels, spec.vectors) == (7, 7, ())
    tower = replace(spec, outputs=(pooled,))
    assert (tower.num_classes, tower.head_channels, tower.head) == (0, 0, None)
    both = replace(spec, outputs=(values, pooled))
    assert (both.num_classes, both.head_channels, both.head) == (0, 3, values)
    assert both.vectors == (values, pooled)
