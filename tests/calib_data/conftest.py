"""What tests of training from scratch share."""

from pathlib import Path

import pytest

from tests.vits import make_images


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine images of three classes, to read."""
    return make_images(tmp_path_factory.mktemp("images"), classes=3, side=8)
