"""What the scripts of the papers measure in tests: a stand-in for every model, on a dozen images."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from exporter.models.identity import Identity, save_weights
from tests.benchmarks.papers.quick import QUICK, TUNING
from tests.benchmarks.scripts import script
from tests.commands import Workplace
from tests.digits import digits
from tests.disk_cache import shared_folder
from tests.vits import TINY, make_model


@pytest.fixture(scope="session")
def place(workplace: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Images for everything, a stand-in, and one folder of results for all tests."""
    own: dict[str, Any] = {**TINY, "depth": 5, "num_classes": 2}

    def make(folder: Path) -> None:
        identity = Identity("tiny", "vit_tiny_patch16_224", own)
        save_weights(make_model(**own), identity, folder / "w.safetensors")

    images = workplace.images
    return script("papers/place.py").Place(
        **QUICK,
        images=images,
        eval_images=images,
        shifted_images=images,
        stand_in=str(shared_folder("5 blocks", make) / "w.safetensors"),
        out=tmp_path_factory.mktemp("reproduced"),
    )


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The bundled model, an image of each digit that it has not seen, and one folder of results for all tests."""
    images = tmp_path_factory.mktemp("digits")
    for digit in (digits() / "held_out").iterdir():
        (images / digit.name).mkdir()
        shutil.copy(min(digit.iterdir()), images / digit.name)
    return script("papers/place.py").Place(
        **QUICK,
        max_eval_images=2,
        images=images,
        eval_images=images,
        shifted_images=images,
        stand_in="digits_vit",
        out=tmp_path_factory.mktemp("reproduced"),
    )


@pytest.fixture
def lab(place: Any) -> Any:
    return script("papers/measure.py").Lab(place, TUNING)
