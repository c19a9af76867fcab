"""What the tables of the STAR paper share: its models, its methods, and the words of a row.

"a-STAR" is the authors' batch-wide form ("a-star-batch"): its rho are the tables'.
"""

from tables import Row, Way

__all__ = [
    "ACCURACY",
    "A_STAR",
    "DEIT_B",
    "DEIT_B_KD",
    "DEIT_S",
    "DEIT_T",
    "DENSE",
    "LV_M",
    "LV_S",
    "OTHERS",
    "TOME",
    "row",
    "tuned",
]

DEIT_B, DEIT_S, DEIT_T = (f"deit_{size}_patch16_224" for size in ("base", "small", "tiny"))
LV_M, LV_S = "lvvit_m", "lvvit_s"
DEIT_B_KD = "deit_base_distilled_patch16_224"
NAMES = {
    DEIT_B: "DeiT-Base",
    DEIT_S: "DeiT-Small",
    DEIT_T: "DeiT-Tiny",
    LV_M: "LV-ViT-M",
    LV_S: "LV-ViT-S",
    DEIT_B_KD: "DeiT-Base distilled",
}
ACCURACY = ("top-1", "top-5")
A_STAR = "a-star-batch"
DENSE = Way()
# Epochs of fine-tuning.
EPOCHS = 120
OTHERS = "another method, not ours to run"
# ToMe merges 13 of 196 patches in each of 12 layers: rho is the rate of the last one.
TOME = Way(
    "tome",
    (196 - 13 * 12) / (196 - 13 * 11),
    scorer="pairs",
    reduce="merge-weighted",
    training={"epochs": EPOCHS},
)


def row(label: str, model: str, way: Way | None, *printed: float | None, why: str = OTHERS) -> Row:
    """Return a row that names its model; `why` is for one without a way."""
    return Row(f"{NAMES[model]}, {label}", model, way, printed, "" if way else why)


def tuned(rho: float, method: str = "star", epochs: int = EPOCHS) -> Way:
    """Return the way of a row that is fine-tuned."""
    return Way(method, rho, training={"epochs": epochs})
