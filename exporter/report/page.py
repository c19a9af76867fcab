"""Write the report as one self-contained HTML file, with its checks and the kept patches over their images."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import jinja2
import numpy as np
from PIL import Image

from exporter.core.base.artefact import Artefact
from exporter.core.base.files import written_beside
from exporter.core.base.intervals import wilson
from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.verify.decisions import NOBODY, positions_by_layer
from exporter.report import words
from exporter.report.chart import chart_of, data_address
from exporter.report.parity_words import SIGNS, check_words
from exporter.report.record import Report
from exporter.report.serving import serving_script
from exporter.report.trade_off import trade_off_of

# Patches that are gone keep this share of their colour; the rest is a blue that is rare in photos and drawings.
GONE_SHARE = 0.22
GONE_COLOUR = (38, 74, 140)
# From the least relevant patches of a layer to the most, over the grey image.
HEAT = ((38, 74, 140), (105, 160, 190), (250, 230, 150), (235, 130, 60), (180, 20, 40))
HEAT_SHARE = 0.6
# Lower shares of a layer's largest relevance look alike.
LEAST_RELEVANCE = 1e-4
SHORTEST_SIDE = 112
SHOWN_LAYERS = 4
# Images that are seen at once, of one method and of several; the others unfold.
FIRST_SHOWN, FIRST_COMPARED = 4, 2


@dataclass(frozen=True)
class Frame:
    """An image with the patches left after a 1-based layer; layer 0 is the whole image. `address` is a data URI.

    `heat` is the one of the image coloured by the relevance of its patches at the layer, "" without.
    """

    layer: int
    left: int
    address: str
    heat: str = ""


# The frames of one image: whole, then after some of the pruning layers.
Picture: TypeAlias = tuple[Frame, ...]
# A report, and the pictures of its examples.
Shown: TypeAlias = tuple[Report, Sequence[Picture]]


def drawn(
    tensors: Mapping[str, Array],
    grid: tuple[int, int],
    order: Array,
    relevance: Sequence[Array] = (),
    among: Collection[int] = (),
) -> list[Picture]:
    """Draw images, each with the patches left after some of the pruning layers; none if no layer prunes.

    Args:
        tensors: `images` uint8 [n, 3, H, W], and the arrays `keep_NN` and a-STAR's `count_NN` of a pruned model.
        grid: Number of patch rows and columns.
        order: Where the patches stand before the first layer.
        relevance: Of the first of the images, [layers, patches] each, to be drawn at the same layers.
        among: The pruning layers to choose from; where there are none, all.
    """
    positions = positions_by_layer(tensors, order)
    layers = sorted(among or positions)
    if not layers:
        return []
    places = np.linspace(0, len(layers) - 1, SHOWN_LAYERS).round().astype(int)
    chosen = [layers[place] for place in np.unique(places)]
    pictures = []
    for index, pixels in enumerate(tensors[IMAGES]):
        frames = [Frame(0, grid[0] * grid[1], image_address(zoomed(pixels)))]
        scores = relevance[index] if index < len(relevance) else None
        for layer in chosen:
            frames.append(_frame(pixels, layer, positions[layer][index], grid, scores))
        pictures.append(tuple(frames))
    return pictures


def _frame(
    pixels: Array,
    layer: int,
    positions: Array,
    grid: tuple[int, int],
    relevance: Array | None,
) -> Frame:
    left = positions[positions != NOBODY]
    address = image_address(zoomed(faded(pixels, left, grid)))
    heat = ""
    if relevance is not None:
        heat = image_address(zoomed(heated(pixels, relevance[layer - 1], grid)))
    return Frame(layer, len(left), address, heat)


def faded(pixels: Array, left: Array, grid: tuple[int, int]) -> Array:
    """Return an image uint8 [3, H, W] in which all patches but those at the positions `left` [k] fade into blue."""
    height, width = pixels.shape[1:]
    share = np.full(grid[0] * grid[1], GONE_SHARE, dtype=np.float32)
    share[left] = 1.0
    light = np.kron(
        share.reshape(grid),
        np.ones((height // grid[0], width // grid[1]), dtype=np.float32),
    )
    gone = np.array(GONE_COLOUR, dtype=np.float32).reshape(3, 1, 1)
    return (light * pixels + (1.0 - light) * gone).astype(np.uint8)


def heated(pixels: Array, relevance: Array, grid: tuple[int, int]) -> Array:
    """Return a grey image uint8 [3, H, W] whose patches have the colour of their relevance [patches], ≥ 0.

    The scale is logarithmic, since scores are fused by their logarithms, from the layer's least to its largest.
    """
    height, width = pixels.shape[1:]
    largest = relevance.max()
    share = np.log(
        np.maximum(relevance / largest if largest else relevance, LEAST_RELEVANCE)
    )
    share = (share - share.min()) / (np.ptp(share) or 1.0)
    stops = np.linspace(0.0, 1.0, len(HEAT))
    colour = np.stack(
        [
            np.interp(share, stops, channel).reshape(grid)
            for channel in np.transpose(HEAT)
        ]
    )
    colour = np.kron(colour, np.ones((height // grid[0], width // grid[1])))
    return (HEAT_SHARE * colour + (1.0 - HEAT_SHARE) * pixels.mean(axis=0)).astype(
        np.uint8
    )


def zoomed(pixels: Array) -> Image.Image:
    """Return uint8 [3, H, W] as an image, enlarged by a whole number if it is small."""
    zoom = max(1, SHORTEST_SIDE // min(pixels.shape[1:]))
    image = Image.fromarray(pixels.transpose(1, 2, 0))
    return image.resize(
        (image.width * zoom, image.height * zoom), Image.Resampling.NEAREST
    )


def image_address(image: Image.Image) -> str:
    """Encode an image as a data URI; WebP takes a tenth of a PNG's bytes for photos."""
    content = BytesIO()
    image.save(content, format="WEBP", quality=90)
    return data_address("image/webp", content.getvalue())


def save_page(
    report: Report,
    artefact: Artefact,
    path: Path,
    *,
    pictures: Sequence[Picture] = (),
    settings: Mapping[str, Any] | None = None,
    try_page: str = "",
) -> None:
    """Write the page atomically.

    The pictures are those of the report's examples, in the same order; `settings` what the user set, by the keys
    of flags; `try_page` the name of the page beside it that runs both models, "" where there is none.
    """
    trade_off = trade_off_of([report])
    write_page(
        path,
        "page.html",
        settings=settings or {},
        try_page=try_page,
        report=report,
        artefact=artefact,
        pictures=list(
            zip(pictures, report.examples or [None] * len(pictures), strict=True)
        ),
        chart=None if trade_off is None else chart_of(trade_off, report.model.name),
        trade_off=trade_off,
        script=serving_script(artefact, report.files["pruned"]),
        wilson=wilson,
    )


def save_comparison(methods: Mapping[str, Shown], path: Path, page: str) -> None:
    """Write the page of several methods side by side atomically.

    `methods` has by name the report and the pictures of its examples, the same images for all, measured in one
    run. `page` is the name of each method's own page, in a folder of the method's name beside this one.
    """
    reports = [report for report, _ in methods.values()]
    trade_off = trade_off_of(reports)
    columns = []
    explained = None
    for method, (report, pictures) in methods.items():
        examples = report.examples or [None] * len(pictures)
        columns.append(
            [
                {"method": method, "picture": picture, "example": example}
                for picture, example in zip(pictures, examples, strict=True)
            ]
        )
        if explained is None and pictures and pictures[0][-1].heat:
            explained = report
    write_page(
        path,
        "comparison.html",
        made=list(methods),
        reports=reports,
        report=reports[0],
        passed=all(report.passed for report in reports),
        pictures=list(zip(*columns, strict=True)),
        explained=explained,
        chart=None if trade_off is None else chart_of(trade_off, reports[0].model.name),
        page=page,
    )


def write_page(path: Path, template: str, **context: Any) -> None:
    """Fill in a template, and write the page atomically."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= vars(words)
    environment.filters.update(words=check_words, sign=SIGNS.__getitem__)
    text = environment.get_template(template).render(
        FIRST_SHOWN=FIRST_SHOWN, FIRST_COMPARED=FIRST_COMPARED, **context
    )
    with written_beside(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
