"""Axis names in signatures are checked while testing: wrong shapes fail where they arise."""

from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook(["exporter.models", "exporter.pruning", "exporter.calibration"], "beartype.beartype")

import torch  # noqa: E402

from exporter.models.base import PrunableViT  # noqa: E402
from tests.vits import make_images, make_vit  # noqa: E402

# Tiny models gain nothing from a second thread, and lose to it on a busy machine.
torch.set_num_threads(1)

# Tests share the machine with each other: how long one takes says nothing of what it tests.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


@pytest.fixture
def tiny_vit() -> PrunableViT:
    """A ViT of 4 blocks and 16 patches with random weights."""
    return make_vit()


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Six small photographs of noise in two class folders."""
    return make_images(tmp_path / "images")
