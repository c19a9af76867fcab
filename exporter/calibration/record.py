"""A calibration's settings, results and file."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from exporter.calibration.settings import CalibrationSettings
from exporter.core.base.canonical_json import from_json, to_json
from exporter.core.base.errors import CalibrationError, as_written
from exporter.core.base.files import regular, written_beside
from exporter.core.base.records import ModelSpec, Preprocessing, Schedule
from exporter.core.base.vocabulary import Layout

Doubles: TypeAlias = NDArray[np.float64]

# The arrays of a calibration, by the names of its fields.
ARRAYS = ("acs", "inter", "overlap")
# The overlap from which a layer's scores count as settled.
ENOUGH = 0.9

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CalibrationRecord:
    """The origin of a calibration. `images` were used, `skipped` could not be read.

    `empty_rows` counts rows of scores (image, class, layer) without a finite, positive score; no mean has them.
    """

    model: str
    weights_sha256: str
    dataset_sha256: str
    images: int
    skipped: int
    empty_rows: int
    grid: tuple[int, int]
    preprocessing: Preprocessing
    settings: CalibrationSettings


@dataclass(frozen=True, eq=False)
class Calibration:
    """ACS [layers], and inter-layer importance [layers, patches] unless only ACS was requested.

    `overlap` [layers] says how far two halves of the images agree (`exporter.calibration.sums`); None without
    importance, for a single image, and in files of earlier versions. `skipped` says why an image could not be read,
    by its name; the file has their number alone.
    """

    record: CalibrationRecord
    acs: Doubles
    inter: Doubles | None
    overlap: Doubles | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        scores = "ACS" if self.inter is None else "ACS and relevance"
        images = f"{self.record.images} images"
        return f"<Calibration {self.record.model}: {scores} of {len(self.acs)} layers, {images}>"

    @property
    def overlap_by_layer(self) -> tuple[float, ...] | None:
        """`overlap` as plain numbers, for reports."""
        return None if self.overlap is None else tuple(map(float, self.overlap))

    def of_first(self, layers: int) -> "Calibration":
        """Return the calibration of a model that ends after so many layers."""
        return replace(
            self,
            acs=self.acs[:layers],
            inter=None if self.inter is None else self.inter[:layers],
            overlap=None if self.overlap is None else self.overlap[:layers],
        )

    @property
    def inter_sha256(self) -> str:
        """Hex digest of the inter-layer scores, which identifies them in a schedule; "" where there are none."""
        if self.inter is None:
            return ""
        return hashlib.sha256(self.inter.astype("<f8").tobytes()).hexdigest()

    def warn_where_unsettled(self, layers: Sequence[int]) -> None:
        """Log one line if the scores of any of these 1-based layers are not settled."""
        overlap = self.overlap
        if overlap is None:
            return
        unsettled = [layer for layer in layers if overlap[layer - 1] < ENOUGH]
        if not unsettled:
            return
        worst = min(unsettled, key=lambda layer: float(overlap[layer - 1]))
        logger.warning(
            "calibration: the two halves of the images agree on less than %g of the best patches in layer%s %s "
            "(%.2f in layer %d) with %d images; use more images for more stable scores",
            ENOUGH,
            "s" if len(unsettled) > 1 else "",
            ", ".join(map(str, unsettled)),
            overlap[worst - 1],
            worst,
            self.record.images,
        )


@dataclass(frozen=True, eq=False)
class Pruning:
    """What prunes weights: a schedule, its calibration if it needs one, and the layout of a-STAR's tokens."""

    schedule: Schedule
    calibration: Calibration | None = None
    layout: Layout | str = Layout.SHRINKING


def check_calibration(
    calibration: Calibration, spec: ModelSpec, weights_sha256: str
) -> None:
    """Check that a calibration was made with this model; weights are not compared where the hash is ""."""
    record = calibration.record
    facts = [
        (f"{len(calibration.acs)} layers", f"{spec.depth} layers"),
        (_input_words(record), _input_words(spec)),
        (_crop_words(record), _crop_words(spec)),
    ]
    if weights_sha256:
        then, now = record.weights_sha256[:12], weights_sha256[:12]
        facts.append((f"weights {then}", f"weights {now}"))
    for got, expected in facts:
        if got != expected:
            raise CalibrationError(
                "calibration",
                f"{got} of {record.model}",
                f"{expected} of {spec.name}",
                "calibrate this model as it is served",
            )


def warn_of_few_images(schedule: Schedule, calibration: Calibration | None) -> None:
    """Log one line if halves of the calibration's images disagree in a layer that prunes by inter-layer scores."""
    if calibration is not None and schedule.inter_sha256:
        calibration.warn_where_unsettled(schedule.pruning_layers)


def _input_words(shape: CalibrationRecord | ModelSpec) -> str:
    _, height, width = shape.preprocessing.input_size
    rows, columns = shape.grid
    return f"an input of {height}x{width} pixels in {rows}x{columns} patches"


def _crop_words(shape: CalibrationRecord | ModelSpec) -> str:
    preprocessing = shape.preprocessing
    return f"images by crop_mode={preprocessing.crop_mode} crop_pct={preprocessing.crop_pct:g}"


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write one safetensors file; equal calibrations give equal bytes."""
    from safetensors.numpy import save  # noqa: PLC0415  (as below)

    arrays = {}
    for name in ARRAYS:
        array = getattr(calibration, name)
        if array is not None:
            arrays[name] = np.ascontiguousarray(array, np.float64)
    content = save(arrays, metadata={"record": to_json(calibration.record)})
    with written_beside(path) as partial:
        partial.write_bytes(content)


def load_calibration(path: Path) -> Calibration:
    """Read a calibration back."""
    from safetensors import safe_open  # noqa: PLC0415  (`--help` reads no file)

    with (
        as_written(path, "a calibration"),
        safe_open(regular(path), framework="numpy") as file,
    ):
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
        return calibration_of((file.metadata() or {})["record"], arrays)


def calibration_of(record: str, arrays: Mapping[str, Doubles]) -> Calibration:
    """Return the calibration of a record in JSON and of arrays by name."""
    origin = from_json(CalibrationRecord, record, source="calibration")
    inter, overlap = arrays.get("inter"), arrays.get("overlap")
    return Calibration(origin, arrays["acs"], inter, overlap)
