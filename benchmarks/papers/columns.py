"""Measure the numbers of a row, by the columns that belong together: accuracy, multiply-adds, throughput, time."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from depth_measures import (
    COST,
    GAP,
    NOISY,
    collected,
    cost_of_samples,
    gradient_gap,
    noise_of_samples,
    plans_of_one_unit,
)
from place import needed
from prepared import Prepared
from protocol import calibrate_acs

from exporter.core.base.tensor_names import IMAGES
from exporter.core.schedule.macs import dense_macs, mean_macs
from exporter.core.verify.reference import patches_left_of, reference_runner
from exporter.data.batches import draw_images, noise
from exporter.data.source import images_at, open_source
from exporter.jobs import steps
from exporter.jobs.eval_models import torch_models
from exporter.jobs.predicting import predict_models
from exporter.measure.benchmark import throughput

Numbers = dict[str, float | None]
Array = np.ndarray[Any, Any]
# Images whose patch counts give the mean multiply-adds of a-STAR.
COUNTED = 256


def accuracy(row: Prepared) -> Numbers:
    """Return top-1 and top-5 in percent, after fine-tuning where the way says so."""
    place, way = row.place, row.way
    folder = needed(place.shifted_images if way.shifted else place.eval_images)
    classes = place.shifted_classes if way.shifted else None
    source = open_source(
        [folder],
        row.vit.spec.num_classes,
        class_map=classes,
        needs_labels=True,
        max_images=place.max_eval_images,
    )
    answers = predict_models(
        torch_models(
            row.tuned,
            row.pruned.schedule if way.drops_patches else None,
            row.calibration,
        )[-1:],
        source,
        row.batch,
        _unseen,
        classes=None if classes is None else np.array(sorted(source.class_names)),
    )
    measured = answers.predictions[0].accuracy
    return {"top-1": 100 * measured.top1, "top-5": 100 * measured.top5}


def recovery(row: Prepared) -> Numbers:
    """Return top-1 in percent before fine-tuning and after it; twice the same where the way has none."""
    untrained = replace(row, way=replace(row.way, training={}))
    return {
        "top-1 before": accuracy(untrained)["top-1"],
        "top-1 after": accuracy(row)["top-1"],
    }


def asymmetry(row: Prepared) -> Numbers:
    """Return the points that a unit costs before training, and those that training wins back: means over layers."""
    results = [recovery(each) for each in plans_of_one_unit(row)]
    plain = replace(row, way=replace(row.way, each=None, training={}))
    whole = accuracy(plain)["top-1"]
    before, after = (
        float(np.mean([each[f"top-1 {when}"] for each in results]))
        for when in ("before", "after")
    )
    assert whole is not None
    return {"lost, points": whole - before, "won back, points": after - before}


def flops(row: Prepared) -> Numbers:
    """Return GMACs of an image, under a-STAR the mean, and the percentage of the unpruned model's that it saves."""
    spec, pruned = row.vit.spec, row.pruned
    varies = pruned.schedule.adaptive
    gmacs = (mean_macs(spec, _patches_left(row)) if varies else pruned.macs).gmacs
    return {
        "GFLOPs": gmacs,
        "FLOPs saved, %": 100 * (1 - gmacs / dense_macs(spec).gmacs),
    }


def speed(row: Prepared) -> Numbers:
    """Time PyTorch, the unpruned and the pruned model in turns; images/s, and the gain in percent.

    A GPU multiplies in TF32, as the printed numbers did: 36.9 TFLOP/s of DeiT-B are beyond an A100's fp32.
    """
    runners = {"dense": reference_runner(steps.dense(row.vit))}
    if row.way.prunes:
        runners["pruned"] = reference_runner(row.pruned)
    feed = {IMAGES: noise(row.vit.spec, "float32", row.batch)}
    strict = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        times = throughput(runners, feed, batch=row.batch, rounds=row.place.rounds)
    finally:
        torch.set_float32_matmul_precision(strict)
    dense, *pruned = (each.images_per_s for each in times.values())
    ours = pruned[0] if pruned else dense
    return {"img/s": ours, "speed-up, %": 100 * (ours / dense - 1)}


def acs_time(row: Prepared) -> Numbers:
    """Return the seconds that ACS takes."""
    start = time.perf_counter()
    calibrate_acs(row.vit, row.train, row.way.acs_images)
    return {"ACS, s": time.perf_counter() - start}


def rates(row: Prepared) -> tuple[float, ...]:
    """Return the retention rate of each layer."""
    return row.pruned.schedule.rates


def kept_shares(row: Prepared) -> list[float]:
    """Return the mean share of its patches that each layer keeps."""
    left = _patches_left(row).mean(0)
    shares: list[float] = (
        left / np.array([row.vit.spec.num_patches, *left[:-1]])
    ).tolist()
    return shares


def _patches_left(row: Prepared) -> Array:
    """Return the patches that evaluation images have left after each layer, [images, depth]."""
    folder = images_at(needed(row.place.eval_images))
    pixels = draw_images(folder, COUNTED, 0, row.vit.spec.preprocessing, "float32")
    return patches_left_of(row.pruned, pixels, "float32", row.batch)


def _unseen(done: int, total: int | None) -> None:
    """Show no progress: a table shows its rows."""


# The columns that one function measures.
MEASURED: Mapping[tuple[str, ...], Callable[[Prepared], Numbers]] = {
    ("top-1", "top-5"): accuracy,
    ("top-1 before", "top-1 after"): recovery,
    ("GFLOPs", "FLOPs saved, %"): flops,
    ("img/s", "speed-up, %"): speed,
    ("ACS, s",): acs_time,
    ("accuracy",): collected,
    NOISY: noise_of_samples,
    COST: cost_of_samples,
    (GAP,): gradient_gap,
    ("lost, points", "won back, points"): asymmetry,
}
