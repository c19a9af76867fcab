"""Samples are written one by one, and read back by the search for a split."""

from pathlib import Path

import pytest

from exporter.depth.collect import Measured, SampleBook, Tally
from exporter.depth.gates import Importance
from exporter.depth.plan import DepthPlan
from exporter.errors import ArtefactError
from exporter.vocabulary import AttentionVariant


def test_they_are_added_and_read_back(tmp_path: Path) -> None:
    book = SampleBook(tmp_path)
    assert book.samples() == ()
    first = Measured.of(DepthPlan(), 12, Tally(9, 10))
    second = Measured.of(DepthPlan((1, 4, 2), (7,), AttentionVariant.NOSE), 12, Tally(1, 3))
    book.add(first)
    book.add(second)
    assert book.samples() == (first, second)
    assert (second.attention, second.activation) == (0.25, 1 / 12)
    assert (first.accuracy, second.accuracy, second.images) == (90.0, 100 / 3, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["samples.json"]


def test_the_first_importance(tmp_path: Path) -> None:
    book, importance = SampleBook(tmp_path), Importance((1 / 3, -1e-9), (0.0, 2.0))
    book.rank(importance)
    assert book.ranking() == importance


@pytest.mark.parametrize("content", ["{", "3", '[{"attention": 0}]', '[["a"]]', '{"a": 1}'])
def test_broken_files(tmp_path: Path, content: str) -> None:
    (tmp_path / "samples.json").write_text(content)
    with pytest.raises(ArtefactError, match=r"samples\.json"):
        SampleBook(tmp_path).samples()
    with pytest.raises(ArtefactError, match=r"ranking\.json"):
        SampleBook(tmp_path).ranking()
