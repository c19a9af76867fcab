"""Ask once whether the hub answers: without a network its library repeats every request for half a minute."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from huggingface_hub import constants, get_session

__all__ = ["hub_or_cache"]

SECONDS = 3.0


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Within the `with`, the library reads its cache alone if the hub does not answer, timm's downloads too."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _answers()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@cache
def _answers() -> bool:
    """Whether the hub answers within seconds; asked once a process."""
    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # of the library's HTTP client, which is another one in other versions
        return False
    return True
