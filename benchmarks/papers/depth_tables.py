"""The tables of BoundaryDPT (ICLR 2026 submission, later HetDPT), as printed; 1 FLOP is 1 multiply-add.

Layers are counted from 1. The printed multiply-adds of pruned rows leave out the two products of attention; ours
have them.
"""

from collections.abc import Iterator, Mapping

from star_rows import DEIT_B, DEIT_S, DENSE, row
from tables import Row, Table, Way

from exporter.depth.plan import DepthPlan
from exporter.vocabulary import AttentionVariant

__all__ = ["TABLES"]

EPOCHS = 400
# What was shipped for DeiT-B, and the layers of NOSE (Lin et al., CVPR 2024).
SHIPPED = DepthPlan((1, 4, 8, 9, 12), (3, 8, 9, 11, 12))
NOSE = DepthPlan((1, 2, 4, 5, 7, 10), (), AttentionVariant.NOSE)


def _models() -> Iterator[Row]:
    rows: tuple[tuple[str, str, Way | None, tuple[float | None, ...]], ...] = (
        (DEIT_B, "baseline", DENSE, (81.8, 17.6, 741.5, None)),
        (DEIT_B, "NOSE, 6 layers", Way(depth=NOSE, epochs=EPOCHS), (81.5, 14.1, 921.4, 24.0)),
        (DEIT_B, "BoundaryDPT, 5 + 5 units", Way(depth=SHIPPED, epochs=EPOCHS), (81.8, 10.5, 1169.7, 58.0)),
        (DEIT_S, "baseline", DENSE, (79.8, None, None, None)),
        # Its layers are not published.
        (DEIT_S, "BoundaryDPT", None, (79.7, None, None, 39.0)),
    )
    return (row(label, model, way, *printed) for model, label, way, printed in rows)


def _samples() -> Iterator[Row]:
    """Yield the samples of the MAP page for DeiT-B: units removed of each type, and accuracy."""
    attention = (81.31, 80.90, 80.20, 78.10, 77.40, 72.69, 69.44, 64.84)
    activation = (81.07, 80.40, 78.90, 77.80, 76.70, 75.20, 74.50, 73.90)
    both = {(1, 1): 80.34, (1, 2): 80.03, (2, 2): 78.88, (2, 3): 78.08, (3, 3): 76.52}
    printed = {
        (0, 0): 81.80,
        **{(count, 0): accuracy for count, accuracy in enumerate(attention, start=1)},
        **{(0, count): accuracy for count, accuracy in enumerate(activation, start=1)},
        **both,
    }
    for (first, second), accuracy in printed.items():
        label = f"{first} attention, {second} activations less"
        yield row(label, DEIT_B, Way(collected=(first, second)), accuracy)


TABLES: Mapping[str, Table] = {
    "depth-models": Table(
        "BoundaryDPT: fewer layers, fine-tuned for 400 epochs",
        ("top-1", "GFLOPs", "img/s", "speed-up, %"),
        tuple(_models()),
    ),
    "depth-samples": Table("BoundaryDPT: the samples of MAP", ("accuracy",), tuple(_samples())),
}
