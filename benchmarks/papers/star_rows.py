"""What the tables of the STAR paper share: its models, its methods, and the words of a row.

"a-STAR" is the authors' batch-wide form ("a-star-batch"): its rho are the tables'.
"""

from tables import Row, Way

__all__ = ["ACCURACY", "A_STAR", "DEIT_B", "DEIT_S", "DEIT_T", "DENSE", "LV_M", "LV_S", "row", "tuned"]

DEIT_B, DEIT_S, DEIT_T = (f"deit_{size}_patch16_224" for size in ("base", "small", "tiny"))
LV_M, LV_S = "lvvit_m", "lvvit_s"
NAMES = {DEIT_B: "DeiT-Base", DEIT_S: "DeiT-Small", DEIT_T: "DeiT-Tiny", LV_M: "LV-ViT-M", LV_S: "LV-ViT-S"}
ACCURACY = ("top-1", "top-5")
A_STAR = "a-star-batch"
DENSE = Way()
# Epochs of fine-tuning.
EPOCHS = 120


def row(label: str, model: str, way: Way | None, *printed: float | None) -> Row:
    """Return a row that names its model."""
    return Row(f"{NAMES[model]}, {label}", model, way, printed)


def tuned(rho: float, method: str = "star", epochs: int = EPOCHS) -> Way:
    """Return the way of a row that is fine-tuned."""
    return Way(method, rho, epochs=epochs)
