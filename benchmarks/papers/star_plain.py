"""Tables 2, 4, 5, 6 and 9 of the STAR paper, as printed: without fine-tuning."""

from collections.abc import Iterator

from star_rows import A_STAR, ACCURACY, DEIT_B, DEIT_S, DEIT_T, DENSE, LV_M, LV_S, row
from tables import Row, Table, Way

__all__ = ["TABLE_2", "TABLE_4", "TABLE_5", "TABLE_6", "TABLE_9"]


def _table_2() -> Iterator[Row]:
    """Rates r, r², r³ of the current count give the printed GFLOPs, but for 0.7 at 4, 7, 10: 10.0, not 10.2."""

    def manual(layers: tuple[int, ...], rate: float, scorer: str, images: int = 192) -> Way:
        rates = {layer: rate**power for power, layer in enumerate(layers, start=1)}
        return Way(rates=rates, scorer=scorer, inter_images=images)

    deep, late = (4, 7, 10), (5, 8, 10)
    rows = (
        ("baseline", DENSE, (81.8, 95.6, 17.6)),
        ("intra-layer, 0.5 at 4, 7, 10", manual(deep, 0.5, "intra"), (71.1, 88.4, 7.8)),
        ("intra-layer, 0.7 at 5, 8, 10", manual(late, 0.7, "intra"), (78.0, 93.1, 11.0)),
        ("intra-layer, 0.7 at 4, 7, 10", manual(deep, 0.7, "intra"), (79.4, 94.2, 10.2)),
        ("inter-layer, 0.7 at 5, 8, 10, batch 64", manual(late, 0.7, "inter", 64), (64.1, 79.6, 11.0)),
        ("inter-layer, 0.7 at 5, 8, 10, batch 128", manual(late, 0.7, "inter", 128), (77.3, 93.1, 11.0)),
        ("inter-layer, 0.7 at 4, 7, 10, batch 128", manual(deep, 0.7, "inter", 128), (78.2, 93.9, 10.2)),
        ("ACS, intra-layer, 0.65", Way(rho=0.65, scorer="intra"), (76.6, 92.6, 8.4)),
        ("ACS, intra-layer, 0.7", Way(rho=0.7, scorer="intra"), (78.2, 93.6, 9.3)),
        ("ACS, intra-layer, 0.75", Way(rho=0.75, scorer="intra"), (79.7, 94.5, 10.2)),
        ("STAR 0.75", Way(rho=0.75, inter_images=128), (80.0, 94.7, 10.2)),
        ("a-STAR 0.77", Way(A_STAR, 0.77, inter_images=128), (80.2, 94.8, 10.2)),
    )
    return (row(label, DEIT_B, way, *printed) for label, way, printed in rows)


def _by_rho(model: str, *printed: tuple[float, float, float, float]) -> Iterator[Row]:
    """Rows of rho, GFLOPs, top-1 and top-5."""
    for rho, *numbers in printed:
        yield row(f"ρ {rho:g}", model, Way(rho=rho) if rho < 1 else DENSE, *numbers)


def _table_4() -> Iterator[Row]:
    yield from _by_rho(
        DEIT_B,
        (1.0, 17.6, 81.8, 95.6),
        (0.9, 14.0, 81.6, 95.5),
        (0.8, 11.2, 80.9, 95.1),
        (0.7, 9.3, 79.1, 94.3),
        (0.6, 7.7, 76.5, 92.8),
    )
    yield from _by_rho(
        DEIT_S,
        (1.0, 4.6, 79.8, 95.0),
        (0.9, 3.6, 79.4, 94.8),
        (0.8, 2.8, 78.7, 94.2),
        (0.7, 2.3, 76.4, 93.1),
        (0.6, 2.0, 73.5, 92.6),
    )
    yield from _by_rho(
        DEIT_T,
        (1.0, 1.3, 72.2, 91.1),
        (0.9, 0.9, 71.3, 90.7),
        (0.8, 0.7, 68.9, 89.1),
        (0.7, 0.6, 65.8, 87.5),
        (0.6, 0.5, 63.4, 84.9),
    )


def _table_5() -> Iterator[Row]:
    yield from _by_rho(
        LV_M,
        (1.0, 12.6, 83.8, 96.6),
        (0.9, 8.8, 83.6, 96.6),
        (0.8, 6.7, 82.4, 96.0),
        (0.7, 5.5, 80.3, 95.2),
        (0.6, 4.7, 77.3, 91.5),
    )
    yield from _by_rho(
        LV_S,
        (1.0, 6.5, 83.3, 96.3),
        (0.9, 5.0, 83.1, 96.3),
        (0.8, 4.0, 82.1, 95.9),
        (0.7, 3.4, 80.3, 94.8),
        (0.6, 3.0, 77.5, 92.9),
    )


def _table_6() -> Iterator[Row]:
    rows = ((1000, 27.6, 10.22, 80.0, 94.7), (500, 14.2, 10.20, 80.0, 94.7), (250, 7.3, 10.20, 79.9, 94.5))
    for images, *printed in (*rows, (100, 3.4, 10.18, 79.8, 94.5)):
        yield row(f"ACS of {images} images", DEIT_B, Way(rho=0.75, acs_images=images), *printed)


def _table_9() -> Iterator[Row]:
    rows = (
        (DEIT_B, (45.36, 17.6, None), (43.64, 11.2, 36.4)),
        (DEIT_S, (42.50, 4.6, None), (41.05, 2.8, 39.1)),
        (DEIT_T, (33.19, 1.3, None), (31.07, 0.7, 46.1)),
    )
    for model, before, after in rows:
        yield row("baseline", model, Way(shifted=True), *before)
        yield row("STAR 0.8", model, Way(rho=0.8, shifted=True), *after)


TABLE_2 = Table("Table 2: the modules of STAR, without fine-tuning", (*ACCURACY, "GFLOPs"), tuple(_table_2()))
TABLE_4 = Table("Table 4: DeiT by ρ, without fine-tuning", ("GFLOPs", *ACCURACY), tuple(_table_4()))
TABLE_5 = Table("Table 5: LV-ViT by ρ, without fine-tuning", ("GFLOPs", *ACCURACY), tuple(_table_5()))
TABLE_6 = Table("Table 6: the number of images of ACS", ("ACS, s", "GFLOPs", *ACCURACY), tuple(_table_6()))
TABLE_9 = Table(
    "Table 9: ImageNet-R, without fine-tuning", ("top-1", "GFLOPs", "FLOPs saved, %"), tuple(_table_9())
)
