"""Resize a calibration to another input size by interpolating its scores over the grid of patches."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn import functional as F

from exporter.calibration.record import Calibration
from exporter.errors import CalibrationError
from exporter.records import ModelSpec

__all__ = ["resize_scores", "resized_to"]


def resized_to(calibration: Calibration, spec: ModelSpec) -> Calibration:
    """Return the calibration for this model's input size; the same object where the size is the same.

    Scores are interpolated, ACS is kept, and so is the crop: both grids cover the same part of the image. The
    weights can no longer be compared, since a position embedding that is resampled for another grid changes their
    hash; name and depth are compared instead.

    Raises:
        CalibrationError: It was made with a model of another name or depth.
    """
    record = calibration.record
    if record.grid == spec.grid and record.preprocessing.input_size == spec.preprocessing.input_size:
        return calibration
    if record.model != spec.name or len(calibration.acs) != spec.depth:
        got = f"{len(calibration.acs)} layers of {record.model}"
        raise CalibrationError(
            "calibration", got, f"{spec.depth} layers of {spec.name} at another input size"
        )
    inter = calibration.inter
    if inter is not None:
        inter = resize_scores(torch.from_numpy(np.array(inter)), record.grid, spec.grid).numpy()
    size = replace(record.preprocessing, input_size=spec.preprocessing.input_size)
    moved = replace(record, grid=spec.grid, preprocessing=size, weights_sha256="")
    return Calibration(moved, calibration.acs, inter, calibration.overlap)


def resize_scores(
    scores: Float64[Tensor, "layers patches"], grid: tuple[int, int], to: tuple[int, int]
) -> Float64[Tensor, "layers others"]:
    """Interpolate scores from one grid of patches to another; bilinear, and averaged where the grid gets coarser.

    Both grids cover the whole image. Positive scores stay positive, and constant ones constant.

    Args:
        scores: One row per layer, patches row by row.
        grid: Rows and columns of the given grid.
        to: Rows and columns of the new grid.
    """
    maps = scores.unflatten(-1, grid).unsqueeze(1)
    return F.interpolate(maps, size=to, mode="bilinear", align_corners=False, antialias=True).flatten(1)
