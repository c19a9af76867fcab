"""A calibration's settings, results and file."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from exporter.calibration.settings import CalibrationSettings
from exporter.errors import ArtefactError, CalibrationError, reason_of
from exporter.files import regular, written_beside
from exporter.formats.canonical_json import from_json, to_json
from exporter.records import ModelSpec, Preprocessing

# The arrays of a calibration, by the names of its fields.
ARRAYS = ("acs", "inter", "overlap")


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
    acs: NDArray[np.float64]
    inter: NDArray[np.float64] | None
    overlap: NDArray[np.float64] | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        what = "ACS" if self.inter is None else "ACS and relevance"
        images = f"{self.record.images} images"
        return f"<Calibration {self.record.model}: {what} of {len(self.acs)} layers, {images}>"

    @property
    def overlap_by_layer(self) -> tuple[float, ...] | None:
        """`overlap` as plain numbers, for reports."""
        return None if self.overlap is None else tuple(map(float, self.overlap))

    def of_first(self, layers: int) -> "Calibration":
        """Return the calibration of a model that ends after so many layers."""
        inter, overlap = (
            None if each is None else each[:layers] for each in (self.inter, self.overlap)
        )
        return replace(self, acs=self.acs[:layers], inter=inter, overlap=overlap)

    @property
    def inter_sha256(self) -> str:
        """Hex digest of the inter-layer scores, which identifies them in a schedule; "" where there are none."""
        return (
            ""
            if self.inter is None
            else hashlib.sha256(self.inter.astype("<f8").tobytes()).hexdigest()
        )


def check_calibration(calibration: Calibration, spec: ModelSpec, weights_sha256: str) -> None:
    """Check that a calibration was made with this model; weights are not compared where the hash is ""."""
    record = calibration.record
    hint = "calibrate this model"
    if len(calibration.acs) != spec.depth:
        got = f"{len(calibration.acs)} layers of {record.model}"
        raise CalibrationError(
            "calibration", got, f"{spec.depth}, the depth of {spec.name}", hint
        )
    if (
        record.preprocessing.input_size != spec.preprocessing.input_size
        or record.grid != spec.grid
    ):
        made, need = (
            f"{'x'.join(map(str, size[1:]))} pixels in {'x'.join(map(str, grid))} patches"
            for size, grid in (
                (record.preprocessing.input_size, record.grid),
                (spec.preprocessing.input_size, spec.grid),
            )
        )
        raise CalibrationError(
            "calibration", f"an input of {made}", f"{need} for {spec.name}", hint
        )
    crops = [
        (each.crop_mode, each.crop_pct) for each in (record.preprocessing, spec.preprocessing)
    ]
    if crops[0] != crops[1]:
        made, need = (f"crop_mode={mode} crop_pct={share:g}" for mode, share in crops)
        hint = "scores belong to positions: calibrate with this crop, or set preprocess in a recipe"
        raise CalibrationError(
            "calibration", f"images by {made}", f"{need} of {spec.name}", hint
        )
    if weights_sha256 and record.weights_sha256 != weights_sha256:
        got = f"weights {record.weights_sha256[:12]} of {record.model}"
        raise CalibrationError(
            "calibration", got, f"weights {weights_sha256[:12]} of {spec.name}", hint
        )


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write one safetensors file; equal calibrations give equal bytes."""
    arrays = ((name, getattr(calibration, name)) for name in ARRAYS)
    content = save(
        {
            name: np.ascontiguousarray(each, np.float64)
            for name, each in arrays
            if each is not None
        },
        metadata={"record": to_json(calibration.record)},
    )
    with written_beside(path) as partial:
        partial.write_bytes(content)


def load_calibration(path: Path) -> Calibration:
    """Read a calibration back."""
    expected = "a calibration"
    try:
        with safe_open(regular(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    except FileNotFoundError:
        raise ArtefactError(str(path), "no such file", expected) from None
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise ArtefactError(str(path), reason_of(error), expected) from None
    if "record" not in metadata:
        raise ArtefactError(str(path), "safetensors without a record", expected)
    return calibration_of(metadata["record"], arrays, str(path))


def calibration_of(
    record: str, arrays: Mapping[str, NDArray[np.float64]], source: str
) -> Calibration:
    """Return the calibration of a record in JSON and of arrays by name; ArtefactError unless all of it is whole."""
    made = from_json(CalibrationRecord, record, source=source)
    acs, inter, overlap = map(arrays.get, ARRAYS)
    patches = made.grid[0] * made.grid[1]
    other = arrays.keys() - set(ARRAYS)
    if acs is None or acs.ndim != 1 or other or (inter is None) == made.settings.relevance:
        raise ArtefactError(source, "other arrays", "acs [layers], and inter with relevance")
    if overlap is not None and overlap.shape != acs.shape:
        raise ArtefactError(source, f"overlap of shape {list(overlap.shape)}", f"[{len(acs)}]")
    if inter is not None and inter.shape != (len(acs), patches):
        raise ArtefactError(
            source, f"inter of shape {list(inter.shape)}", f"[{len(acs)}, {patches}]"
        )
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ArtefactError(source, "values that are not finite", "a calibration")
    return Calibration(made, acs, inter, overlap)
