"""Closed words: strings wherever they go, and refused with the list of them."""

import json

import pytest

from exporter.errors import RecipeError
from exporter.vocabulary import InputKind, Layout, Method, Precision, Word

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
    assert str(error.value) == f"{subject} | got 'abacus' | need one of {', '.join(kind)}"
