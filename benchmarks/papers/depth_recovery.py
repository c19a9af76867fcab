"""What training wins back after a single unit is removed, as printed in BoundaryDPT's rebuttal.

Question 5 of reviewer 4wzp: top-1 on CIFAR-100 in percent. Of the training, seed and epochs are printed alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from star_rows import DEIT_B, DENSE, row
from tables import Row, Table, Way

from exporter.depth.plan import DepthPlan

__all__ = ["PRINTED", "RECOVERY", "TRAINING", "WHOLE"]

WHOLE = 86.80
# By layer: without the activation, after 10 epochs, after 50; the same without the attention.
PRINTED = (
    (1.00, 83.97, 85.92, 85.29, 86.40, 86.72),
    (1.00, 84.82, 85.72, 85.23, 86.20, 86.54),
    (1.00, 84.87, 85.70, 85.71, 86.10, 86.46),
    (1.00, 83.69, 86.14, 85.21, 86.10, 86.60),
    (1.00, 84.18, 85.85, 85.31, 85.80, 86.49),
    (1.00, 84.99, 86.16, 85.64, 86.10, 86.39),
    (1.31, 85.00, 86.17, 85.95, 86.20, 86.53),
    (1.03, 85.67, 86.58, 85.82, 86.47, 86.60),
    (0.00, 85.11, 86.92, 85.68, 85.90, 86.64),
    (1.00, 86.17, 86.92, 85.55, 86.03, 86.25),
    (1.93, 86.73, 87.04, 86.10, 86.37, 86.85),
    (4.51, 86.85, 86.83, 86.33, 86.35, 86.89),
)
# Of a log of HetDPT: the learning rate is 5e-5 for 512 images. The batch is that number of images.
TRAINING: Mapping[str, Any] = {
    "batch_size": 512,
    "lr": 5e-5,
    "min_lr": 1e-5,
    "weight_decay": 0.08,
    "distillation": 0.5,
    "repeats": 1,
    "seed": 42,
}
DROP_PATH = 0.1


def _rows() -> Iterator[Row]:
    """Yield the whole network, then the layers of each type: those trained for 10 epochs first."""
    yield row("baseline, not trained", DEIT_B, DENSE, WHOLE, None)
    for place, epochs in enumerate((10, 50), start=1):
        for layer, printed in enumerate(PRINTED, start=1):
            plan = DepthPlan(activation=(layer,))
            yield _row(f"activation of layer {layer}", plan, epochs, printed[0], printed[place])
        for layer, printed in enumerate(PRINTED, start=1):
            plan = DepthPlan(attention=(layer,))
            yield _row(f"attention of layer {layer}", plan, epochs, printed[3], printed[3 + place])


def _row(unit: str, plan: DepthPlan, epochs: int, *printed: float) -> Row:
    way = Way(depth=plan, training={**TRAINING, "epochs": epochs}, drop_path=DROP_PATH)
    return row(f"without {unit}, {epochs} epochs", DEIT_B, way, *printed)


RECOVERY = Table(
    "BoundaryDPT: one unit less, before and after training on CIFAR-100",
    ("top-1 before", "top-1 after"),
    tuple(_rows()),
    "The rebuttal names neither the network of twelve layers nor its training but for seed and epochs: DeiT-Base "
    "stands in, whose weights for CIFAR-100 --weights has to give, and the authors' learning rate for 512 images.",
)
