"""The tables of the STAR paper (Zhang et al., ICLR 2024), as printed; 1 FLOP of the paper is 1 multiply-add.

"a-STAR" is the authors' batch-wide form (`batch_wide`): its rho are the tables'.
"""

from collections.abc import Iterator, Mapping

from batch_wide import BATCH_WIDE
from tables import Row, Table, Way

DEIT_B, DEIT_S, DEIT_T = (
    f"deit_{size}_patch16_224" for size in ("base", "small", "tiny")
)
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
A_STAR = BATCH_WIDE
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


def row(
    label: str, model: str, way: Way | None, *printed: float | None, why: str = OTHERS
) -> Row:
    """Return a row that names its model; `why` is for one without a way."""
    return Row(f"{NAMES[model]}, {label}", model, way, printed, "" if way else why)


def tuned(rho: float, method: str = "star", epochs: int = EPOCHS) -> Way:
    """Return the way of a row that is fine-tuned."""
    return Way(method, rho, training={"epochs": epochs})


def adaptive(rho: float, epochs: int = EPOCHS) -> Way:
    """Return the same under a-STAR."""
    return tuned(rho, A_STAR, epochs)


# Model, label, how it is made, what is printed: top-1, top-5, GFLOPs and what is saved, img/s and what is gained.
ROWS_1: tuple[tuple[str, str, Way | None, tuple[float | None, ...]], ...] = (
    (DEIT_B, "baseline", DENSE, (81.8, 95.6, 17.6, None, 1051.6, None)),
    (DEIT_B, "IA-RED²", None, (80.3, 95.0, 11.8, 33.0, 1380.1, 31.2)),
    (DEIT_B, "EViT", None, (81.3, 95.3, 11.6, 34.1, 1454.7, 38.3)),
    (DEIT_B, "CP-ViT", None, (81.1, None, 10.3, 41.6, None, None)),
    (DEIT_B, "SCOP", None, (79.7, 94.5, 10.2, 42.0, 1504.7, 43.1)),
    (DEIT_B, "STAR 0.75", tuned(0.75), (81.5, 95.5, 10.2, 42.0, 1782.8, 69.5)),
    (DEIT_B, "a-STAR 0.75", adaptive(0.75), (81.4, 95.5, 10.0, 43.2, 1867.0, 77.5)),
    (DEIT_B, "VTP", None, (80.7, 95.0, 10.0, 43.2, 1586.0, 50.8)),
    (DEIT_B, "STAR 0.7", tuned(0.7), (81.0, 95.1, 9.3, 47.2, 1944.5, 84.9)),
    (DEIT_B, "a-STAR 0.7", adaptive(0.7), (80.8, 95.0, 9.0, 48.9, 2028.2, 92.8)),
    (DEIT_S, "baseline", DENSE, (79.8, 95.0, 4.6, None, 1995.6, None)),
    (DEIT_S, "IA-RED²", None, (79.1, 94.5, 3.2, 31.5, 2566.4, 28.6)),
    (DEIT_S, "SCOP", None, (77.5, 93.5, 2.6, 43.5, 2823.8, 41.5)),
    (DEIT_S, "PoWER", None, (78.3, 94.0, 2.7, 41.3, 2939.5, 47.3)),
    (DEIT_S, "ToMe, r = 13", TOME, (79.4, None, 2.7, 41.3, 3346.7, 67.7)),
    (DEIT_S, "STAR 0.75", tuned(0.75), (79.4, 94.5, 2.6, 43.5, 3670.8, 83.9)),
    (DEIT_S, "a-STAR 0.75", adaptive(0.75), (79.3, 94.4, 2.5, 45.7, 3843.7, 92.6)),
    (DEIT_S, "HVT", None, (78.0, 93.8, 2.4, 47.8, 2835.7, 42.1)),
    (DEIT_S, "STAR 0.7", tuned(0.7), (79.2, 94.3, 2.3, 50.0, 4080.6, 104.5)),
    (DEIT_S, "a-STAR 0.7", adaptive(0.7), (79.0, 94.2, 2.2, 52.2, 4256.9, 113.3)),
    (DEIT_T, "baseline", DENSE, (72.2, 91.1, 1.3, None, 2544.0, None)),
    (DEIT_T, "SAViT", None, (70.7, None, 0.9, 30.8, None, None)),
    (DEIT_T, "ToMe, r = 13", TOME, (71.4, None, 0.8, 41.7, 3137.1, 57.2)),
    (DEIT_T, "VTC-LFC", None, (71.0, 90.4, 0.8, 41.7, 4352.8, 71.1)),
    (DEIT_T, "STAR 0.8", tuned(0.8), (72.0, 90.7, 0.7, 46.2, 5042.9, 98.2)),
    (DEIT_T, "a-STAR 0.8", adaptive(0.8), (72.0, 90.7, 0.7, 46.2, 5104.8, 99.8)),
    (LV_M, "baseline", DENSE, (83.8, 96.6, 12.6, None, 1061.6, None)),
    (LV_M, "EViT", None, (82.9, 95.8, 8.5, 32.5, 1820.6, 71.5)),
    (LV_M, "STAR 0.8", tuned(0.8), (83.3, 96.4, 6.7, 46.8, 1922.6, 81.1)),
    (LV_M, "a-STAR 0.8", adaptive(0.8), (83.2, 96.3, 6.5, 48.4, 1971.7, 85.7)),
    (LV_S, "baseline", DENSE, (83.3, 96.3, 6.5, None, 1681.3, None)),
    (LV_S, "PS-LV-ViT-S", None, (82.4, None, 4.7, 27.7, None, None)),
    (LV_S, "EViT", None, (82.5, 96.2, 3.9, 40.0, 2374.0, 41.2)),
    (LV_S, "VTC-LFC", None, (81.8, 95.6, 3.2, 50.8, None, None)),
    (LV_S, "STAR 0.65", tuned(0.65), (82.7, 96.2, 3.2, 50.8, 3353.2, 99.4)),
    (LV_S, "a-STAR 0.65", adaptive(0.65), (82.5, 96.1, 3.1, 52.3, 3439.8, 104.6)),
)


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
        ("a-STAR 0.8", adaptive(0.8, epochs=30), (11.0, 81.5, 1702.1, 61.8)),
    )
    return (row(label, DEIT_B, way, *printed) for label, way, printed in rows)


TABLE_1 = Table(
    "Table 1: STAR, fine-tuned for 120 epochs",
    (*ACCURACY, "GFLOPs", "FLOPs saved, %", "img/s", "speed-up, %"),
    tuple(row(label, model, way, *printed) for model, label, way, printed in ROWS_1),
    "ToMe: printed from its own article, where it is trained from scratch (Bolya et al., 2023). Assumed: r = 13, "
    "as in the models that its authors published, and our fine-tuning, as in the rows of STAR. What a "
    "printed row saves follows from rounded GFLOPs: of DeiT-Tiny 46.2 % is 1 − 0.7/1.3, ours 41.1 %. Its ToMe "
    "row's 57.2 % is beside another baseline: 23.3 % beside this one.",
)
TABLE_7 = Table(
    "Table 7: what fine-tuning gains", ("GFLOPs", *ACCURACY), tuple(_table_7())
)
TABLE_8 = Table(
    "Table 8: beside DiffRate, fine-tuned for 30 epochs",
    ("GFLOPs", "top-1", "img/s", "speed-up, %"),
    tuple(_table_8()),
)


def manual(layers: tuple[int, ...], rate: float, scorer: str, images: int = 192) -> Way:
    """Return the way of rates r, r², r³ of the current count.

    They give the printed GFLOPs, but for 0.7 at 4, 7, 10: 10.0, not 10.2.
    """
    rates = {layer: rate**power for power, layer in enumerate(layers, start=1)}
    return Way(rates=rates, scorer=scorer, inter_images=images)


DEEP, LATE = (4, 7, 10), (5, 8, 10)
ROWS_2 = (
    ("baseline", DENSE, (81.8, 95.6, 17.6)),
    ("intra-layer, 0.5 at 4, 7, 10", manual(DEEP, 0.5, "intra"), (71.1, 88.4, 7.8)),
    ("intra-layer, 0.7 at 5, 8, 10", manual(LATE, 0.7, "intra"), (78.0, 93.1, 11.0)),
    ("intra-layer, 0.7 at 4, 7, 10", manual(DEEP, 0.7, "intra"), (79.4, 94.2, 10.2)),
    (
        "inter-layer, 0.7 at 5, 8, 10, batch 64",
        manual(LATE, 0.7, "inter", 64),
        (64.1, 79.6, 11.0),
    ),
    (
        "inter-layer, 0.7 at 5, 8, 10, batch 128",
        manual(LATE, 0.7, "inter", 128),
        (77.3, 93.1, 11.0),
    ),
    (
        "inter-layer, 0.7 at 4, 7, 10, batch 128",
        manual(DEEP, 0.7, "inter", 128),
        (78.2, 93.9, 10.2),
    ),
    ("ACS, intra-layer, 0.65", Way(rho=0.65, scorer="intra"), (76.6, 92.6, 8.4)),
    ("ACS, intra-layer, 0.7", Way(rho=0.7, scorer="intra"), (78.2, 93.6, 9.3)),
    ("ACS, intra-layer, 0.75", Way(rho=0.75, scorer="intra"), (79.7, 94.5, 10.2)),
    ("STAR 0.75", Way(rho=0.75, inter_images=128), (80.0, 94.7, 10.2)),
    ("a-STAR 0.77", Way(A_STAR, 0.77, inter_images=128), (80.2, 94.8, 10.2)),
)


def _by_rho(model: str, *printed: tuple[float, float, float, float]) -> Iterator[Row]:
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
    rows = (
        (1000, 27.6, 10.22, 80.0, 94.7),
        (500, 14.2, 10.20, 80.0, 94.7),
        (250, 7.3, 10.20, 79.9, 94.5),
    )
    for images, *printed in (*rows, (100, 3.4, 10.18, 79.8, 94.5)):
        yield row(
            f"ACS of {images} images",
            DEIT_B,
            Way(rho=0.75, acs_images=images),
            *printed,
        )


def _table_9() -> Iterator[Row]:
    rows = (
        (DEIT_B, (45.36, 17.6, None), (43.64, 11.2, 36.4)),
        (DEIT_S, (42.50, 4.6, None), (41.05, 2.8, 39.1)),
        (DEIT_T, (33.19, 1.3, None), (31.07, 0.7, 46.1)),
    )
    for model, before, after in rows:
        yield row("baseline", model, Way(shifted=True), *before)
        yield row("STAR 0.8", model, Way(rho=0.8, shifted=True), *after)


TABLE_2 = Table(
    "Table 2: the modules of STAR, without fine-tuning",
    (*ACCURACY, "GFLOPs"),
    tuple(row(label, DEIT_B, way, *printed) for label, way, printed in ROWS_2),
)
TABLE_4 = Table(
    "Table 4: DeiT by ρ, without fine-tuning", ("GFLOPs", *ACCURACY), tuple(_table_4())
)
TABLE_5 = Table(
    "Table 5: LV-ViT by ρ, without fine-tuning",
    ("GFLOPs", *ACCURACY),
    tuple(_table_5()),
)
TABLE_6 = Table(
    "Table 6: the number of images of ACS",
    ("ACS, s", "GFLOPs", *ACCURACY),
    tuple(_table_6()),
)
TABLE_9 = Table(
    "Table 9: ImageNet-R, without fine-tuning",
    ("top-1", "GFLOPs", "FLOPs saved, %"),
    tuple(_table_9()),
)


DEIT_ALPHAS = (0.0, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LV_ALPHAS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
# Model, batch, rho, alphas; top-1 and top-5 of the unpruned model; top-1 and top-5 by alpha of STAR and a-STAR.
AlphaRow = tuple[
    str,
    int,
    float,
    tuple[float, ...],
    tuple[float, float],
    Mapping[str, tuple[str, str]],
]
ALPHA_ROWS: tuple[AlphaRow, ...] = (
    (DEIT_B, 192, 0.75, DEIT_ALPHAS, (81.8, 95.6), {
        "star": ("77.7 79.9 80.0 79.8 79.7 79.7 79.6 79.6 79.5 79.5 79.4 79.4",
                 "93.2 94.5 94.7 94.6 94.4 94.5 94.4 94.4 94.3 94.3 94.2 94.1"),
        A_STAR: ("77.4 79.4 79.7 79.6 79.5 79.3 79.3 79.2 79.2 79.2 79.2 79.1",
                 "93.0 94.3 94.5 94.4 94.3 94.2 94.2 94.2 94.2 94.1 94.1 94.1")}),
    (DEIT_S, 256, 0.75, DEIT_ALPHAS, (79.8, 95.0), {
        "star": ("75.5 77.5 77.6 77.5 77.3 77.1 77.0 77.0 76.9 77.0 77.0 76.9",
                 "92.4 93.8 93.9 93.8 93.6 93.6 93.5 93.5 93.5 93.6 93.5 93.4"),
        A_STAR: ("75.4 77.2 77.3 77.2 77.0 76.8 76.6 76.6 76.4 76.5 76.4 76.3",
                 "92.4 93.6 93.7 93.6 93.4 93.4 93.3 93.3 93.3 93.2 93.2 93.1")}),
    (DEIT_T, 512, 0.8, DEIT_ALPHAS, (72.2, 91.1), {
        "star": ("66.2 68.7 68.9 68.7 68.7 68.6 68.6 68.5 68.3 68.4 68.3 68.2",
                 "87.5 89.0 89.1 89.0 88.9 88.9 88.9 88.8 88.8 88.8 88.7 88.8"),
        A_STAR: ("65.7 68.4 68.6 68.3 68.3 68.2 68.2 68.0 67.9 67.9 67.8 67.6",
                 "87.2 88.6 88.8 88.7 88.6 88.6 88.5 88.5 88.5 88.4 88.4 88.3")}),
    (LV_M, 128, 0.8, LV_ALPHAS, (83.8, 96.6), {
        "star": ("80.3 82.1 82.2 82.3 82.4 82.3 82.2 82.2 82.1 82.0 82.0 81.9",
                 "94.7 95.8 95.9 95.9 96.0 95.9 95.9 95.8 95.8 95.8 95.8 95.7"),
        A_STAR: ("79.8 81.9 81.9 82.0 82.1 81.9 81.7 81.8 81.7 81.6 81.6 81.6",
                 "94.3 95.7 95.7 95.7 95.8 95.7 95.6 95.6 95.5 95.5 95.5 95.4")}),
    (LV_S, 256, 0.65, LV_ALPHAS, (83.3, 96.3), {
        "star": ("71.5 78.4 78.6 78.6 78.7 78.5 78.4 78.1 78.2 78.0 77.9 78.0",
                 "89.6 93.7 93.7 93.7 93.8 93.7 93.5 93.5 93.4 93.3 93.3 93.3"),
        A_STAR: ("71.2 77.9 78.0 78.1 78.0 77.9 77.7 77.8 77.6 77.6 77.5 77.3",
                 "89.5 93.3 93.4 93.4 93.3 93.2 93.1 92.9 92.9 92.8 92.7 92.7")}),
)  # fmt: skip


def _table_3() -> Iterator[Row]:
    for model, batch, rho, alphas, whole, methods in ALPHA_ROWS:
        yield row("baseline", model, DENSE, *whole)
        for method, (top1, top5) in methods.items():
            name = "STAR" if method == "star" else "a-STAR"
            for alpha, one, five in zip(
                alphas, top1.split(), top5.split(), strict=True
            ):
                way = Way(method, rho, alpha=alpha, inter_images=batch, batch=batch)
                yield row(f"{name}, α {alpha:g}", model, way, float(one), float(five))


TABLE_3 = Table(
    "Table 3: the weight α of the fusion, without fine-tuning",
    ACCURACY,
    tuple(_table_3()),
)

TABLES: Mapping[str, Table] = {
    f"star-{number}": table
    for number, table in enumerate(
        (
            TABLE_1,
            TABLE_2,
            TABLE_3,
            TABLE_4,
            TABLE_5,
            TABLE_6,
            TABLE_7,
            TABLE_8,
            TABLE_9,
        ),
        start=1,
    )
}
