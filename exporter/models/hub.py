"""Whether the hub of models answers: asked once a process, since its client would try each file for a minute."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from huggingface_hub import constants, get_session

SECONDS = 3.0


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Within the `with`, the cache alone is read if the hub does not answer: by timm and transformers too."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _answers()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@cache
def _answers() -> bool:
    """Whether the hub answers within seconds."""
    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    # of the library's HTTP client, which is another one in other versions
    except Exception:
        return False
    return True
