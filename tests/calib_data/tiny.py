"""A tiny ViT that a test can train."""

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
