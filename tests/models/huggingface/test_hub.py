"""A hub that does not answer is asked once; the library then reads its cache alone."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import LocalEntryNotFoundError

from exporter.models.huggingface import repository
from exporter.models.huggingface.repository import hub_or_cache


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time limits of the questions to a hub that is out of reach."""
    seen: list[float] = []

    def head(_endpoint: str, timeout: float) -> None:
        seen.append(timeout)
        raise RuntimeError("no route")

    monkeypatch.setattr(repository, "get_session", lambda: SimpleNamespace(head=head))
    repository._answers.cache_clear()
    yield seen
    repository._answers.cache_clear()


def test_without_an_answer_the_cache_alone_is_read(asked: list[float]) -> None:
    for _ in range(2):
        with hub_or_cache():
            assert constants.HF_HUB_OFFLINE
            with pytest.raises(LocalEntryNotFoundError):
                hf_hub_download("someone/mistyped", "config.json")
    assert asked == [repository.SECONDS] and repository.SECONDS < 5


def test_the_library_is_as_it_was_afterwards(asked: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", before)
        with pytest.raises(KeyError), hub_or_cache():
            raise KeyError
        assert constants.HF_HUB_OFFLINE is before


def test_a_hub_that_answers_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_answers", lambda: True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with hub_or_cache():
        assert not constants.HF_HUB_OFFLINE
