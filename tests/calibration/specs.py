"""Model specs for calibration tests that need no model."""

from exporter.records import BlockMacs, ModelSpec, Output, Preprocessing
from exporter.vocabulary import CropMode, Interpolation, OutputKind

__all__ = ["LOGITS", "PREPROCESSING", "SPEC"]

PREPROCESSING = Preprocessing(
    (3, 32, 32), Interpolation.BICUBIC, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 0.9, CropMode.CENTER
)
LOGITS = Output("logits", OutputKind.LOGITS, 7)
SPEC = ModelSpec(
    "tiny", 48, 3, 1, (4, 4), 147_456, (BlockMacs(9_216, 18_432),) * 3, 336, PREPROCESSING, (LOGITS,)
)
