"""What an old release of a library cannot do, so that a test of it is left out there, with the reason."""

import pytest
import timm
import torch

from exporter.models.listed import model_list

# `star-export models` warns under another release than that of its list, and builds what it is asked for.
LISTED = pytest.mark.skipif(
    not model_list().is_current,
    reason=f"timm {timm.__version__}: the list of models is of {model_list().timm}",
)


def timm_is_before(release: str) -> bool:
    """Whether timm is older than a release, e.g. "1.0.31"."""
    return _numbers(timm.__version__) < _numbers(release)


def runs_in_double(family: str) -> None:
    """Skip the test where timm's own network cannot compute in float64."""
    if family == "rotary a head" and timm_is_before("1.0.31"):
        pytest.skip(
            f"timm {timm.__version__} has no mixed rotations in double precision"
        )


def skip_untranslated(what: str, *, used: bool) -> None:
    """Skip the test if it uses what the exporter of PyTorch 2.6 refuses, and this is that version."""
    if used and torch.__version__.startswith("2.6."):
        pytest.skip(f"PyTorch {torch.__version__} does not translate {what}")


def _numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")[:3] if part.isdigit()]
