"""Calibrate: stream the images once, in order, and sum up their scores."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from exporter.calibration.backward import explainable, explained_outputs
from exporter.calibration.importance import scores_of_image
from exporter.calibration.record import (
    Calibration,
    CalibrationRecord,
    Doubles,
    save_calibration,
)
from exporter.calibration.settings import CHECKS, CalibrationSettings, planned_images
from exporter.calibration.sums import (
    Scored,
    Sums,
    better_half_overlap,
    is_settled,
    load_sums,
    save_sums,
    scored_chunks,
)
from exporter.calibration.trace import in_dtype
from exporter.core.base.errors import CalibrationError, ImageError
from exporter.core.base.files import writable_file, writable_folder
from exporter.core.base.machine import job_identity
from exporter.core.base.records import normalise
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit.protocol import PrunableViT
from exporter.data.images import ImageFolder, dataset_sha256
from exporter.processes import processes

logger = logging.getLogger(__name__)

SAVE_EVERY = 16  # images between two writes of the partial sums

OnProgress = Callable[[int, int], object]


def calibrate_to(
    path: Path,
    vit: PrunableViT,
    images: ImageFolder,
    settings: CalibrationSettings,
    on_progress: OnProgress | None = None,
    *,
    keep_sums: bool = False,
) -> Calibration:
    """Calibrate into a file; after an interruption, the next call continues, and writes the same bytes.

    Partial sums are in a file next to it (`sums_path`) until it is written; with `keep_sums` they stay, and the
    next call scores no image again.
    """
    writable_folder(path.parent)
    partial = sums_path(path)
    calibration = calibrate(
        vit, images, settings, partial=partial, on_progress=on_progress
    )
    if processes().main:
        save_calibration(calibration, path)
        if not keep_sums:
            partial.unlink(missing_ok=True)
    return calibration


def sums_path(path: Path) -> Path:
    """Return the path of the sums of a calibration that is written to `path`."""
    return path.with_name(f"{path.name}.partial")


def calibrate(
    vit: PrunableViT,
    images: ImageFolder,
    settings: CalibrationSettings,
    *,
    partial: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Calibration:
    """Compute inter-layer importance and ACS of an unpruned ViT over a folder of images.

    Each image's relevance is computed alone, so that no other image can change it. The processes of a launcher
    share the images; sums are made in the order of the images, so that the number of processes changes nothing.

    Args:
        vit: In eval mode; it is not changed. Where the settings ask for another dtype, a copy computes.
        images: All images that may be drawn from.
        settings: What to compute, and from how many images.
        partial: File for the sums, which stays. It continues from the sums of the same model, images and settings,
            finished ones too.
        on_progress: Called with the number of images done and the total, with "auto" up to the next check.
    """
    if partial and processes().main:
        writable_file(partial)
    if settings.relevance:
        _check_head(vit)
    classes = _explained(vit, settings)
    planned = planned_images(images, settings)
    digest = dataset_sha256([item.file for item in planned])
    model = (vit.spec, vit.weights_sha256, vit.device.type)
    key = job_identity(settings, models=model, images=[digest])
    sums = (partial and load_sums(partial, key)) or Sums.zero(vit.spec)
    scorer = (
        in_dtype(vit, getattr(torch, settings.dtype)) if settings.relevance else vit
    )
    chunks = scored_chunks(scorer, planned[sums.done :], classes, settings)

    def save(sums: Sums) -> None:
        if partial and processes().main:
            save_sums(sums, partial, key)

    def tell(done: int) -> None:
        if on_progress:
            on_progress(done, _goal(done, len(planned), settings))

    sums = _summed(sums, chunks, settings, save, tell, images=images)
    if sums.done < len(planned):
        digest = dataset_sha256([item.file for item in planned[: sums.done]])
    calibration = _finished(vit, images, sums, digest, settings)
    save(sums)
    return calibration


def relevance_maps(
    vit: PrunableViT, pixels: NDArray[np.uint8], settings: CalibrationSettings
) -> Doubles:
    """Return each image's own scores, of which a calibration with these settings is the mean (STAR, Figure 1).

    Args:
        vit: As for `calibrate`.
        pixels: uint8 [images, 3, height, width].
        settings: Those of the calibration.

    Returns:
        [images, layers, patches] ≥ 0; 0 in a layer where no class had a score.
    """
    classes = _explained(vit, settings)
    scorer = in_dtype(vit, getattr(torch, settings.dtype))
    inputs = torch.from_numpy(normalise(pixels, vit.spec.preprocessing)).to(vit.device)
    maps = []
    for image in inputs:
        inter = scores_of_image(scorer, image[None], classes).inter
        assert inter is not None
        maps.append(inter)
    return np.stack(maps)


def _summed(
    sums: Sums,
    chunks: Iterator[list[Scored]],
    settings: CalibrationSettings,
    save: Callable[[Sums], None],
    tell: Callable[[int], None],
    *,
    images: ImageFolder,
) -> Sums:
    """Add chunks until the sums are settled or none is left; save now and then, and where it is interrupted."""
    try:
        while not _settled(sums, settings) and (chunk := next(chunks, None)):
            before = sums.done
            sums = _added(sums, chunk, images)
            if before // SAVE_EVERY != sums.done // SAVE_EVERY:
                save(sums)
            tell(sums.done)
    except KeyboardInterrupt:
        save(sums)
        raise
    return sums


def _settled(sums: Sums, settings: CalibrationSettings) -> bool:
    """Whether "auto" stops here; without relevance, at the first check, since ACS settles early.

    It depends on nothing but the sums, so an interruption does not change it.
    """
    if settings.max_images != "auto" or sums.done not in CHECKS:
        return False
    return not settings.relevance or is_settled(sums.halves)


def _goal(done: int, planned: int, settings: CalibrationSettings) -> int:
    """Return the number of images at which progress is complete: with "auto", the next check."""
    if settings.max_images != "auto":
        return planned
    return min(planned, next(check for check in CHECKS if check >= done))


def _explained(vit: PrunableViT, settings: CalibrationSettings) -> int:
    """Return how many numbers of the head are explained: classes and labels by their rank, values all."""
    most = explained_outputs(vit)
    count = settings.classes_of(most, vit.spec.name)
    ranks = all(output.kind != OutputKind.VALUES for output in vit.outputs)
    if settings.relevance and count < most and not ranks:
        got = f"{count} of the {most} values of {vit.spec.name}"
        hint = f"--set calibrate.gamma={most}; --scorer received needs none"
        raise CalibrationError("relevance", got, "all: none ranks before others", hint)
    return count


def _check_head(vit: PrunableViT) -> None:
    if explainable(vit):
        return
    expected = "a head that is linear in the class token, or in the mean of the patches"
    hint = "--scorer received needs none"
    raise CalibrationError("relevance", f"the head of {vit.spec.name}", expected, hint)


def _added(sums: Sums, chunk: Sequence[Scored], images: ImageFolder) -> Sums:
    for item, scores in chunk:
        if isinstance(scores, str):
            sums = sums.plus_skipped(images.name_of(item.file.path), scores)
        else:
            sums = sums.plus(scores, item.half)
    return sums


def _finished(
    vit: PrunableViT,
    images: ImageFolder,
    sums: Sums,
    digest: str,
    settings: CalibrationSettings,
) -> Calibration:
    """Return the means of the sums over all images, which must tell images apart."""
    _, used, skipped, empty_rows = map(int, sums.counts)
    if used == 0:
        raise ImageError(
            images.root,
            f"{skipped} images, none of which can be read",
            "readable images",
        )
    record = CalibrationRecord(
        model=vit.spec.name,
        weights_sha256=vit.weights_sha256,
        dataset_sha256=digest,
        images=used,
        skipped=skipped,
        empty_rows=empty_rows,
        grid=vit.spec.grid,
        preprocessing=vit.spec.preprocessing,
        settings=settings,
    )
    inter = sums.mean_inter() if settings.relevance else None
    acs = sums.mean_acs()
    if inter is not None:
        _check_relevance(vit, sums, empty_rows)
    _check_acs(acs)
    return Calibration(
        record, acs, inter, better_half_overlap(sums.halves), sums.skipped
    )


def _check_acs(acs: NDArray[np.float64]) -> None:
    if not np.isfinite(acs).all() or not acs.any():
        got = "NaN or infinity" if acs.any() else "0 in every layer"
        raise CalibrationError(
            "ACS", got, "weights that tell images apart", "are they trained?"
        )


def _check_relevance(vit: PrunableViT, sums: Sums, empty_rows: int) -> None:
    """Check that each layer with attention has scores, and warn where rows of scores were left out."""
    without = [
        layer for layer in vit.spec.attention_layers if not sums.counted[layer - 1]
    ]
    if without:
        got = f"no finite, positive score of any image in layers {', '.join(map(str, without))}"
        raise CalibrationError(
            "relevance", got, "weights that tell images apart", "are they trained?"
        )
    if empty_rows:
        message = "relevance: %d rows (image, class, layer) without a finite, positive score are left out"
        logger.warning(message, empty_rows)
