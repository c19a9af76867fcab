"""Table 3 of the STAR paper, as printed: top-1 and top-5 by the weight α of the fusion."""

from collections.abc import Iterator, Mapping

from star_rows import A_STAR, ACCURACY, DEIT_B, DEIT_S, DEIT_T, DENSE, LV_M, LV_S, row
from tables import Row, Table, Way

__all__ = ["TABLE_3"]

DEIT_ALPHAS = (0.0, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LV_ALPHAS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
# Model, batch, rho, alphas; top-1 and top-5 of the unpruned model; top-1 and top-5 by alpha of STAR and a-STAR.
AlphaRow = tuple[str, int, float, tuple[float, ...], tuple[float, float], Mapping[str, tuple[str, str]]]
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
            for alpha, one, five in zip(alphas, top1.split(), top5.split(), strict=True):
                way = Way(method, rho, alpha=alpha, inter_images=batch, batch=batch)
                yield row(f"{name}, α {alpha:g}", model, way, float(one), float(five))


TABLE_3 = Table("Table 3: the weight α of the fusion, without fine-tuning", ACCURACY, tuple(_table_3()))
