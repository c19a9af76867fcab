"""A hub that does not answer is asked once, and then the cache alone is read."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import LocalEntryNotFoundError

from exporter.models import hub
from exporter.models.hub import hub_or_cache


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time limits of the questions to a hub that is out of reach."""
    seen: list[float] = []

    def head(_endpoint: str, timeout: float) -> None:
        seen.append(timeout)
        raise RuntimeError("no route")

    monkeypatch.setattr(hub, "get_session", lambda: SimpleNamespace(head=head))
    hub._answers.cache_clear()
    yield seen
    hub._answers.cache_clear()


def test_without_an_answer_the_cache_alone_is_read(limits: list[float]) -> None:
    for _ in range(2):
        with hub_or_cache():
            assert constants.HF_HUB_OFFLINE
            with pytest.raises(LocalEntryNotFoundError):
                hf_hub_download("someone/mistyped", "config.json")
    assert limits == [hub.SECONDS] and hub.SECONDS < 5


def test_the_client_is_as_it_was_afterwards(
    limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for before in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", before)
        with pytest.raises(KeyError), hub_or_cache():
            raise KeyError
        assert constants.HF_HUB_OFFLINE is before


def test_a_hub_that_answers_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_answers", lambda: True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with hub_or_cache():
        assert not constants.HF_HUB_OFFLINE
