"""A tiny ViT that a test can train, and a handful of images for it."""

from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console

from tests.benchmarks.scripts import script

# calib_data/train.py as a module.
TRAIN = script("../calib_data/train.py")
QUIET = Console(quiet=True)
SHAPE = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "num_heads": 2, "depth": 2}
TINY = TRAIN.TrainSettings(
    model_kwargs=SHAPE,
    epochs=2,
    small_epochs=1,
    warmup_epochs=1,
    batch_size=4,
    ema_decay=0.9,
    augment="affine",
    crop_pct=1.0,
)


def write_images(root: Path, classes: int, count: int = 3) -> Path:
    """A folder of 8×8 noise, one folder a class."""
    random = np.random.default_rng(0)
    for label in range(classes):
        for index in range(count):
            path = root / f"class{label}" / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    return root
