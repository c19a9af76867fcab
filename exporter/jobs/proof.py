"""Compare the models of a compilation with PyTorch, measure their accuracy and speed, and show it on pages."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.calibration.calibrate import relevance_maps
from exporter.calibration.record import Calibration
from exporter.core import compiler
from exporter.core.base.large_onnx import bytes_of, load_whole, save_onnx
from exporter.core.base.machine import environment
from exporter.core.base.records import Pair
from exporter.core.base.targets import TARGETS
from exporter.core.base.tensor_names import IMAGES, Array, keep_layers
from exporter.core.base.vocabulary import InputKind
from exporter.core.prune.ops.curve import order_of
from exporter.core.schedule.macs import PatchUse, dense_macs, patch_use
from exporter.core.verify.playback_runner import dense_name
from exporter.core.verify.record import ParityReport
from exporter.core.verify.reference import (
    answers_of,
    patches_left_of,
    reference_runner,
)
from exporter.core.verify.runner import Runner
from exporter.core.verify.runners import runner_here
from exporter.core.vit.spec import as_it_came
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder
from exporter.jobs.predicting import EvalModel, embed_models, predict_models
from exporter.jobs.variant import Variant
from exporter.measure.accuracy import warn_of_guesses
from exporter.measure.batch_sweep import AS_IT_CAME, time_batches
from exporter.measure.likeness import compare_vectors
from exporter.measure.quality import quality_of
from exporter.measure.settings import BATCH
from exporter.measure.speed import Speed
from exporter.processes import Processes
from exporter.report.examples import chosen_examples
from exporter.report.page import Picture, drawn
from exporter.report.record import CalibratedOn, Report

logger = logging.getLogger(__name__)

# Images that are shown of a model without classes.
FIRST = 4
# What is compiled under a launcher, the main process compiles.
ALONE = Processes()
# Images whose relevance is shown: of a large model it takes seconds each.
EXPLAINED = 4


def references_of(
    dense: Variant, variants: Sequence[Variant], pixels: Array
) -> Iterator[dict[str, Array]]:
    """Yield for each variant what PyTorch answers, once for all that is compared: the arrays of `reference.npz`.

    Args:
        dense: The dense model.
        variants: The pruned models.
        pixels: [n, 3, H, W], as the lowered models take them.
    """
    kind = dense.network.input_kind
    unpruned = answers_of(dense.pruned, pixels, kind)
    of_dense = {dense_name(name): array for name, array in unpruned.items()}
    for variant in variants:
        yield {
            IMAGES: pixels,
            **answers_of(variant.pruned, pixels, kind),
            **of_dense,
        }


def prove(
    dense: Variant,
    variants: Sequence[Variant],
    references: Sequence[dict[str, Array]],
    folder: ImageFolder | None,
) -> list[Report]:
    """Compare models with their references, then with the dense one, in the same runs; return a report for each.

    Args:
        dense: The dense model, lowered as the others.
        variants: The pruned models.
        references: Those of the variants; parity and speed are measured on their images.
        folder: Images for accuracy, which is measured if all have labels; without, the models are compared. None
            where there are only pixels to check: noise.
    """
    spec, measuring = dense.network.vit.spec, dense.network.measuring
    models = [dense.ready("dense")]
    models += [variant.ready(str(place)) for place, variant in enumerate(variants)]
    with ExitStack() as loaded:
        for model in models:
            loaded.enter_context(model.runner)
        reports = _with_parity(models, dense, variants, references)
        if folder is None:
            reports = [replace(report, measured_on="noise") for report in reports]
        elif spec.num_classes:
            # PyTorch's reference, where the target computes in less than fp32.
            in_fp32 = replace(dense, lowering=None)
            reduced = dense.file.target.reduced
            others = [in_fp32.ready("fp32")] if reduced else []
            reports = _with_classes(reports, [*models, *others], dense, folder)
        if folder is not None:
            reports = _with_vectors(reports, models, dense, folder)
        if measuring.rounds:
            pixels = references[0][IMAGES]
            reports = _with_speeds(reports, models, dense, pixels)
    return reports


def _with_parity(
    models: Sequence[EvalModel],
    dense: Variant,
    variants: Sequence[Variant],
    references: Sequence[dict[str, Array]],
) -> list[Report]:
    """Return the reports of variants, before anything is measured but parity and the patches that are left.

    The models are the dense one, and that of each variant.
    """
    stages, measuring = dense.network.stages, dense.network.measuring
    with stages.stage("parity, dense"):
        parity = _parity(models[0], dense, references[0])
    reports = []
    for model, variant, reference in zip(models[1:], variants, references, strict=True):
        pruned = variant.pruned
        with stages.stage(f"parity, {pruned.method}"):
            pair = Pair(parity, _parity(model, variant, reference))
        use = None
        if pruned.schedule.adaptive:
            with stages.stage("patches left"):
                kind, batch = variant.file.input_kind, measuring.batch
                left = patches_left_of(pruned, reference[IMAGES], kind, batch)
                use = patch_use(
                    pruned.vit.spec, pruned.schedule, left, pruned.layout, batch
                )
        reports.append(_report(dense, variant, pair, use))
    return reports


def _report(
    dense: Variant, variant: Variant, parity: Pair[ParityReport], use: PatchUse | None
) -> Report:
    spec, target = variant.pruned.vit.spec, variant.file.target
    measuring, macs = variant.network.measuring, variant.pruned.macs
    useful, scoring = macs.total, macs.scoring
    if use is not None:
        useful, scoring = use.useful_macs, use.scoring_macs
    paths = {"dense": dense.file.path, "pruned": variant.file.path}
    return Report(
        model=spec,
        target=target.name,
        schedule=variant.schedule,
        files={role: path.name for role, path in paths.items()},
        file_bytes={role: bytes_of(path) for role, path in paths.items()},
        gmacs={
            "as_it_came": dense_macs(spec.as_it_came).gmacs,
            "dense": dense.pruned.macs.gmacs,
            "pruned": useful / 1e9,
            "scoring": scoring / 1e9,
        },
        parity=parity,
        hardware=environment(measuring.threads, installed=True),
        speed=Speed(measuring.batch),
        use=use,
        calibration=_calibrated_on(variant.calibration),
        refit=variant.gain,
    )


def _calibrated_on(calibration: Calibration | None) -> CalibratedOn | None:
    if calibration is None:
        return None
    record, overlap = calibration.record, calibration.overlap_by_layer
    return CalibratedOn(
        record.images, record.skipped, overlap, dict(calibration.skipped)
    )


def _parity(
    model: EvalModel, variant: Variant, reference: dict[str, Array]
) -> ParityReport:
    lowered, threads = load_whole(variant.file.path), variant.network.measuring.threads
    return compiler.check_recorded(reference, model.runner, lowered, threads=threads)


def _with_classes(
    reports: Sequence[Report],
    models: Sequence[EvalModel],
    dense: Variant,
    folder: ImageFolder,
) -> list[Report]:
    """Return the reports with what the models say about the same images, of which all show the same.

    The models are the dense one, that of each report, and the one in fp32 where there is one.
    """
    stage = "accuracy" if folder.labelled else "agreement of classes"
    with dense.network.stages.stage(stage) as advance:
        answers = predict_models(models, folder, BATCH, advance, crew=ALONE)
    unpruned, *pruned = answers.predictions
    if unpruned.labelled:
        classes = dense.network.vit.spec.num_classes
        warn_of_guesses(unpruned.accuracy, classes, folder.root)
    original = pruned.pop() if len(pruned) > len(reports) else None
    examples = chosen_examples(answers.names, unpruned, pruned)
    judged = []
    for report, predictions, chosen in zip(reports, pruned, examples, strict=True):
        quality = quality_of(unpruned, predictions, original, answers.skipped)
        judged.append(replace(report, quality=quality, examples=chosen))
    return judged


def _with_vectors(
    reports: Sequence[Report],
    models: Sequence[EvalModel],
    dense: Variant,
    folder: ImageFolder,
) -> list[Report]:
    """Return the reports with how far the outputs without classes agree with the dense model's."""
    spec = dense.network.vit.spec
    for output in spec.vectors:
        names = [output.name] * len(models)
        with dense.network.stages.stage(f"agreement of {output.name}") as advance:
            answers = embed_models(models, names, folder, BATCH, advance, crew=ALONE)
        unpruned, *pruned = answers.arrays
        agreeing = []
        for report, vectors in zip(reports, pruned, strict=True):
            likeness = compare_vectors(
                unpruned, vectors, answers.labels, output, spec.class_names
            )
            skipped = report.quality.skipped | answers.skipped
            quality = replace(report.quality, **likeness, skipped=skipped)
            agreeing.append(replace(report, quality=quality))
        reports = agreeing
    return list(reports)


def _as_it_came(dense: Variant, scratch: Path) -> dict[str, Runner]:
    """Return a runner of the model as its owner runs it, by name; none where the dense file is that model.

    It computes in fp32, and all tokens to the end: no speed-up over it hides what precision or the last layer gain.
    """
    spec, target = dense.pruned.vit.spec, dense.file.target
    if not target.reduced and not spec.lone_layer:
        return {}
    fp32 = target
    if target.reduced:
        rows = [row for row in TARGETS.values() if row.runtime == target.runtime]
        fp32 = next(row for row in rows if not row.reduced)
    path = scratch / fp32.file_name(spec.name, AS_IT_CAME)
    vit = as_it_came(dense.pruned.vit)
    model = compiler.prune(vit, compiler.plan(vit, None))
    save_onnx(compiler.lower(model, fp32, dense.file.input_kind), path)
    return {AS_IT_CAME: runner_here(path, fp32, dense.network.measuring.threads)}


def _with_speeds(
    reports: Sequence[Report],
    models: Sequence[EvalModel],
    dense: Variant,
    pixels: Array,
) -> list[Report]:
    """Time all models in one run; return the reports with the times at every batch size."""
    measuring = dense.network.measuring
    sizes = sorted({measuring.batch, *measuring.more_batches})
    rounds = measuring.rounds
    runners = {model.name: model.runner for model in models}
    for runner in runners.values():
        runner.fix(sizes)
    stage = dense.network.stages.stage("throughput")
    with stage as advance, TemporaryDirectory(prefix="star-export-") as scratch:
        runners |= _as_it_came(dense, Path(scratch))
        runs = time_batches(runners, pixels, sizes, rounds, on_progress=advance)
        times = [*runs]
    timed = []
    for place, report in enumerate(reports):
        mac_ratio = report.gmacs["dense"] / report.gmacs["pruned"]
        speed = Speed.of(measuring.batch, times, str(place), mac_ratio)
        timed.append(replace(report, speed=speed))
    return timed


def pictures_of(
    reports: Sequence[Report], variants: Sequence[Variant], folder: ImageFolder | None
) -> list[list[Picture]]:
    """Draw the examples of the reports with the patches that each PyTorch reference keeps of them.

    Where a schedule prunes by inter-layer scores, the first few also have their relevance, scored as the images of
    the calibration were.

    Args:
        reports: They have the same examples, or none: the first images are shown then.
        variants: Those of the reports.
        folder: The images of the examples; None for no pictures.
    """
    if folder is None:
        return [[] for _ in reports]
    network = variants[0].network
    named = {folder.name_of(file.path): file for file in folder.files}
    examples = [named[example.image] for example in reports[0].examples]
    count = len(examples) or FIRST
    preprocessing = network.full.spec.preprocessing
    pixels = first_images(
        examples or folder.files, preprocessing, InputKind.UINT8, count
    )
    feed = {IMAGES: pixels}
    outputs = []
    for variant in variants:
        with reference_runner(variant.pruned, InputKind.UINT8) as runner:
            outputs.append({**runner.run(feed), **feed})
    # The layers in which every variant prunes, which stand side by side.
    layers = set.intersection(*(set(keep_layers(arrays)) for arrays in outputs))
    relevance: list[Array] = []
    pictures = []
    for variant, arrays in zip(variants, outputs, strict=True):
        calibration = variant.calibration if variant.schedule.inter_sha256 else None
        if calibration is not None and not relevance:
            settings = calibration.record.settings
            relevance = [
                *relevance_maps(network.full, feed[IMAGES][:EXPLAINED], settings)
            ]
        maps = () if calibration is None else relevance
        grid = network.full.spec.grid
        order = order_of(variant.schedule, grid)
        pictures.append(drawn(arrays, grid, order, maps, layers))
    return pictures
