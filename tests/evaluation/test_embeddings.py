"""Cosine and retrieval: against a plain loop, and at the ends of their ranges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.evaluation import embeddings
from exporter.evaluation.embeddings import Embeddings, agreement_of, embed_each
from exporter.evaluation.intervals import wilson
from exporter.runtimes.base import TensorInfo
from tests.fakes import NumpyRunner


def of(values: np.ndarray) -> Embeddings:
    return Embeddings(values.astype(np.float32), np.zeros(len(values), np.int64))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(0.0, 2.0))
def test_it_is_the_plain_loop(seed: int, images: int, noise: float) -> None:
    generator = np.random.default_rng(seed)
    first = generator.standard_normal((images, 5)).astype(np.float32)
    second = (first + noise * generator.standard_normal(first.shape)).astype(np.float32)
    found = agreement_of(of(first), of(second))
    cosines = [cosine(a, b) for a, b in zip(first, second, strict=True)]
    assert found.embedding_cosine == pytest.approx(np.mean(cosines), abs=1e-5)
    assert found.embedding_cosine_least == pytest.approx(min(cosines), abs=1e-5)
    same = 0
    for image in range(images):
        others = [other for other in range(images) if other != image]
        nearest = (max(others, key=lambda at: cosine(query[image], first[at])) for query in (first, second))
        same += len(set(nearest)) == 1
    assert found.retrieval_at_1 == pytest.approx(same / images)
    assert found.retrieval_interval == wilson(same, images)


def test_length_does_not_matter_and_an_embedding_of_zeros_agrees_with_nothing() -> None:
    values = np.array([[3.0, 1, 0], [1, 2, 0], [0, 1, 5]])
    same = agreement_of(of(values), of(7 * values))
    assert same.embedding_cosine == pytest.approx(1) and same.retrieval_at_1 == 1
    assert agreement_of(of(values), of(0 * values)).embedding_cosine == 0


def test_one_image_has_no_neighbour() -> None:
    found = agreement_of(of(np.ones((1, 3))), of(np.ones((1, 3))))
    assert (found.images, found.retrieval_at_1, found.retrieval_interval) == (1, None, None)


def test_parts_of_the_queries_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    first, second = (of(generator.standard_normal((9, 4))) for _ in range(2))
    whole = agreement_of(first, second)
    monkeypatch.setattr(embeddings, "ROWS", 2)
    assert agreement_of(first, second) == whole


def test_every_image_is_embedded_by_each_model() -> None:
    infos = (TensorInfo("images", ("batch", 2), "float32"),), (TensorInfo("e", ("batch", 2), "float32"),)
    runners = [NumpyRunner(lambda feed: {"e": feed["images"] + 1}, *infos) for _ in range(2)]
    images = np.arange(6, dtype=np.float32).reshape(3, 2)
    batches = [((images[:2], images[:2]), np.array([-1, -1])), ((images[2:], 2 * images[2:]), np.array([-1]))]
    one, two = embed_each(runners, batches, ["e", "e"])
    assert one.values.tolist() == (images + 1).tolist()
    assert two.values[2].tolist() == (2 * images[2] + 1).tolist()
    assert one.labels.tolist() == [-1] * 3
