"""What an old release of a library cannot do, so that a test of it is left out there, with the reason."""

import pytest
import timm

__all__ = ["needs_timm", "timm_is_before"]


def timm_is_before(version: str) -> bool:
    """Whether timm is older than a release, e.g. "1.0.31"."""
    return [int(part) for part in timm.__version__.split(".")[:3] if part.isdigit()] < [
        int(part) for part in version.split(".")
    ]


def needs_timm(version: str, what: str) -> None:
    """Skip the test where timm is older than the release with which `what` was seen to work."""
    if timm_is_before(version):
        pytest.skip(f"timm {timm.__version__}, not {version}: {what}")
