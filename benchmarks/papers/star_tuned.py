"""Tables 1, 7 and 8 of the STAR paper, as printed: after fine-tuning."""

from collections.abc import Iterator

from star_rows import A_STAR, ACCURACY, DEIT_B, DEIT_S, DEIT_T, DENSE, LV_M, LV_S, TOME, row, tuned
from tables import Row, Table, Way

__all__ = ["TABLE_1", "TABLE_7", "TABLE_8"]


def _table_1() -> Iterator[Row]:
    rows: tuple[tuple[str, str, Way | None, tuple[float | None, ...]], ...] = (
        (DEIT_B, "baseline", DENSE, (81.8, 95.6, 17.6, None, 1051.6, None)),
        (DEIT_B, "IA-RED²", None, (80.3, 95.0, 11.8, 33.0, 1380.1, 31.2)),
        (DEIT_B, "EViT", None, (81.3, 95.3, 11.6, 34.1, 1454.7, 38.3)),
        (DEIT_B, "CP-ViT", None, (81.1, None, 10.3, 41.6, None, None)),
        (DEIT_B, "SCOP", None, (79.7, 94.5, 10.2, 42.0, 1504.7, 43.1)),
        (DEIT_B, "STAR 0.75", tuned(0.75), (81.5, 95.5, 10.2, 42.0, 1782.8, 69.5)),
        (DEIT_B, "a-STAR 0.75", tuned(0.75, A_STAR), (81.4, 95.5, 10.0, 43.2, 1867.0, 77.5)),
        (DEIT_B, "VTP", None, (80.7, 95.0, 10.0, 43.2, 1586.0, 50.8)),
        (DEIT_B, "STAR 0.7", tuned(0.7), (81.0, 95.1, 9.3, 47.2, 1944.5, 84.9)),
        (DEIT_B, "a-STAR 0.7", tuned(0.7, A_STAR), (80.8, 95.0, 9.0, 48.9, 2028.2, 92.8)),
        (DEIT_S, "baseline", DENSE, (79.8, 95.0, 4.6, None, 1995.6, None)),
        (DEIT_S, "IA-RED²", None, (79.1, 94.5, 3.2, 31.5, 2566.4, 28.6)),
        (DEIT_S, "SCOP", None, (77.5, 93.5, 2.6, 43.5, 2823.8, 41.5)),
        (DEIT_S, "PoWER", None, (78.3, 94.0, 2.7, 41.3, 2939.5, 47.3)),
        (DEIT_S, "ToMe, r = 13", TOME, (79.4, None, 2.7, 41.3, 3346.7, 67.7)),
        (DEIT_S, "STAR 0.75", tuned(0.75), (79.4, 94.5, 2.6, 43.5, 3670.8, 83.9)),
        (DEIT_S, "a-STAR 0.75", tuned(0.75, A_STAR), (79.3, 94.4, 2.5, 45.7, 3843.7, 92.6)),
        (DEIT_S, "HVT", None, (78.0, 93.8, 2.4, 47.8, 2835.7, 42.1)),
        (DEIT_S, "STAR 0.7", tuned(0.7), (79.2, 94.3, 2.3, 50.0, 4080.6, 104.5)),
        (DEIT_S, "a-STAR 0.7", tuned(0.7, A_STAR), (79.0, 94.2, 2.2, 52.2, 4256.9, 113.3)),
        (DEIT_T, "baseline", DENSE, (72.2, 91.1, 1.3, None, 2544.0, None)),
        (DEIT_T, "SAViT", None, (70.7, None, 0.9, 30.8, None, None)),
        (DEIT_T, "ToMe, r = 13", TOME, (71.4, None, 0.8, 41.7, 3137.1, 57.2)),
        (DEIT_T, "VTC-LFC", None, (71.0, 90.4, 0.8, 41.7, 4352.8, 71.1)),
        (DEIT_T, "STAR 0.8", tuned(0.8), (72.0, 90.7, 0.7, 46.2, 5042.9, 98.2)),
        (DEIT_T, "a-STAR 0.8", tuned(0.8, A_STAR), (72.0, 90.7, 0.7, 46.2, 5104.8, 99.8)),
        (LV_M, "baseline", DENSE, (83.8, 96.6, 12.6, None, 1061.6, None)),
        (LV_M, "EViT", None, (82.9, 95.8, 8.5, 32.5, 1820.6, 71.5)),
        (LV_M, "STAR 0.8", tuned(0.8), (83.3, 96.4, 6.7, 46.8, 1922.6, 81.1)),
        (LV_M, "a-STAR 0.8", tuned(0.8, A_STAR), (83.2, 96.3, 6.5, 48.4, 1971.7, 85.7)),
        (LV_S, "baseline", DENSE, (83.3, 96.3, 6.5, None, 1681.3, None)),
        (LV_S, "PS-LV-ViT-S", None, (82.4, None, 4.7, 27.7, None, None)),
        (LV_S, "EViT", None, (82.5, 96.2, 3.9, 40.0, 2374.0, 41.2)),
        (LV_S, "VTC-LFC", None, (81.8, 95.6, 3.2, 50.8, None, None)),
        (LV_S, "STAR 0.65", tuned(0.65), (82.7, 96.2, 3.2, 50.8, 3353.2, 99.4)),
        (LV_S, "a-STAR 0.65", tuned(0.65, A_STAR), (82.5, 96.1, 3.1, 52.3, 3439.8, 104.6)),
    )
    return (row(label, model, way, *printed) for model, label, way, printed in rows)


def _table_7() -> Iterator[Row]:
    rows = (
        (DEIT_B, 0.75, 10.2, (80.0, 94.7), (81.5, 95.5)),
        (DEIT_S, 0.75, 2.6, (77.6, 93.9), (79.4, 94.5)),
        (DEIT_T, 0.8, 0.7, (68.9, 89.1), (72.0, 90.7)),
        (LV_M, 0.8, 6.7, (82.4, 96.0), (83.3, 96.4)),
        (LV_S, 0.65, 3.2, (78.7, 93.8), (82.7, 96.2)),
    )
    for model, rho, flops, before, after in rows:
        yield row("without fine-tuning", model, Way(rho=rho), flops, *before)
        yield row("fine-tuned", model, tuned(rho), flops, *after)


def _table_8() -> Iterator[Row]:
    rows: tuple[tuple[str, Way | None, tuple[float | None, ...]], ...] = (
        ("baseline", DENSE, (17.6, 81.8, 1051.6, None)),
        ("DiffRate", None, (11.5, 81.6, 1444.9, 37.4)),
        ("STAR 0.8", tuned(0.8, epochs=30), (11.2, 81.6, 1595.9, 51.7)),
        ("a-STAR 0.8", tuned(0.8, A_STAR, epochs=30), (11.0, 81.5, 1702.1, 61.8)),
    )
    return (row(label, DEIT_B, way, *printed) for label, way, printed in rows)


TABLE_1 = Table(
    "Table 1: STAR, fine-tuned for 120 epochs",
    (*ACCURACY, "GFLOPs", "FLOPs saved, %", "img/s", "speed-up, %"),
    tuple(_table_1()),
    "ToMe: printed from its own article, where it is trained from scratch (Bolya et al., 2023). Assumed: r = 13, "
    "as in the models that its authors published, and our fine-tuning, as in the rows of STAR. What a "
    "printed row saves follows from rounded GFLOPs: of DeiT-Tiny 46.2 % is 1 − 0.7/1.3, ours 41.1 %. Its ToMe "
    "row's 57.2 % is beside another baseline: 23.3 % beside this one.",
)
TABLE_7 = Table("Table 7: what fine-tuning gains", ("GFLOPs", *ACCURACY), tuple(_table_7()))
TABLE_8 = Table(
    "Table 8: beside DiffRate, fine-tuned for 30 epochs",
    ("GFLOPs", "top-1", "img/s", "speed-up, %"),
    tuple(_table_8()),
)
