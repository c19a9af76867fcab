"""What the scripts of the papers measure in tests: a stand-in for every model, on a dozen images."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from exporter.models.identity import Identity, save_weights
from tests.benchmarks.papers.quick import QUICK, TUNING
from tests.benchmarks.scripts import script
from tests.digits import digits
from tests.disk_cache import shared_folder
from tests.vits import TINY, make_model


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stand-in of few layers, an image of each digit, and one folder of results for all tests."""
    own: dict[str, Any] = {**TINY, "depth": 5, "num_classes": 10}

    def make(folder: Path) -> None:
        identity = Identity("tiny", "vit_tiny_patch16_224", own)
        save_weights(make_model(**own), identity, folder / "w.safetensors")

    images = tmp_path_factory.mktemp("digits")
    for digit in (digits() / "held_out").iterdir():
        (images / digit.name).mkdir()
        shutil.copy(min(digit.iterdir()), images / digit.name)
    return script("papers/place.py").Place(
        **QUICK,
        images=images,
        eval_images=images,
        shifted_images=images,
        stand_in=str(shared_folder("5 blocks", make) / "w.safetensors"),
        out=tmp_path_factory.mktemp("reproduced"),
    )


@pytest.fixture
def lab(place: Any) -> Any:
    return script("papers/measure.py").Lab(place, TUNING)
