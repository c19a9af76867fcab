"""Compare the models of a compilation with PyTorch, measure their accuracy and speed, and show it on pages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from exporter.artefact import Artefact, LoweredFile
from exporter.calibration.calibrate import relevance_maps
from exporter.calibration.record import Calibration
from exporter.data.batches import View, batches_of, first_images
from exporter.data.images import ImageFolder
from exporter.data.source import ImageSource
from exporter.evaluation.accuracy import Batches, Predictions, predict_each
from exporter.evaluation.batch_sweep import AS_IT_CAME, AtBatch, BenchSettings, time_batches
from exporter.evaluation.benchmark import TradeOff, environment
from exporter.evaluation.loss import PairResult, agreement_of, compare_predictions, embed_each
from exporter.evaluation.parity.checks import ParityReport
from exporter.evaluation.parity.reference import check, load_onnx, patches_left_of, reference_runner
from exporter.evaluation.report.page import Chart, Picture, Shown, drawn, save_comparison, save_page
from exporter.evaluation.report.record import (
    CalibratedOn,
    Gmacs,
    InFp32,
    Report,
    chosen_examples,
    trade_off_of,
)
from exporter.lowering.pipeline import lower, save_onnx
from exporter.models.base import PrunableViT
from exporter.models.spec import as_it_came
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Pair
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import runner_here
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.trtexec import folder_lines
from exporter.schedule.macs import MacCount, PatchUse, dense_macs, patch_use
from exporter.targets import TARGETS, TENSORRT
from exporter.tensor_names import IMAGES, Array, keep_layers
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.folders.export_folder import PAGE
from exporter.workflows.predicting import ImagePass
from exporter.workflows.progress import Advance, Stages
from exporter.workflows.recipe import Measuring

# Images that are shown of a model without classes.
FIRST = 4
# Images whose relevance is shown: of a large model it takes seconds each.
EXPLAINED = 4


def prove(
    references: Sequence[Pair[PrunedViT]],
    models: Sequence[Pair[LoweredFile]],
    *,
    calibrations: Sequence[Calibration | None],
    folder: ImageFolder | None,
    images: Array,
    measuring: Measuring,
    stages: Stages,
) -> list[Report]:
    """Compare models with their references, then with the dense one, in the same runs; return a report for each.

    Args:
        references: Each pruned model in PyTorch, beside the dense one, which is the same for all.
        models: The lowered models.
        calibrations: What each schedule was made from, if anything.
        folder: Images for accuracy, which is measured if all have labels; without, the models are compared. None
            where there are only images to check: noise.
        images: [n, 3, H, W] for parity and speed, as the models take them.
        measuring: Threads, batch and rounds.
        stages: Shows progress.
    """
    with stages.stage("parity, dense"):
        dense = _parity(references[0].dense, models[0].dense, images, measuring)
    reports = []
    for reference, model, calibration in zip(references, models, calibrations, strict=True):
        with stages.stage(f"parity, {reference.pruned.method}"):
            parity = Pair(dense, _parity(reference.pruned, model.pruned, images, measuring))
        use = None
        if reference.pruned.schedule.adaptive:
            with stages.stage("patches left"):
                use = _use(reference.pruned, images, model.pruned.artefact.input_kind, measuring.batch)
        made = _made(reference, model, parity, use, measuring)
        on = None if calibration is None else _calibrated_on(calibration)
        reports.append(replace(made, calibration=on, class_names=reference.pruned.vit.spec.class_names))
    spec = references[0].dense.vit.spec
    if folder is None:
        reports = [replace(each, measured_on="noise") for each in reports]
    if folder is not None and spec.num_classes:
        with stages.stage("accuracy" if folder.labelled else "agreement of classes") as advance:
            seen = _pass(folder, advance)
            reports = _with_classes(reports, references[0].dense, models, seen, measuring)
    if folder is not None and spec.embedding:
        with stages.stage("agreement of embeddings") as advance:
            reports = _with_agreement(reports, models, _pass(folder, advance), measuring)
    if measuring.rounds:
        macs = [_macs(reference, each.use) for reference, each in zip(references, reports, strict=True)]
        with stages.stage("throughput"), TemporaryDirectory(prefix="star-export-") as scratch:
            came = _as_it_came(references[0].dense, models[0].dense, Path(scratch), measuring)
            batches = _speeds({**_runners(models, measuring), **came}, images, measuring, macs)
        reports = [replace(each, batches=own) for each, own in zip(reports, batches, strict=True)]
    return reports


def _made(
    references: Pair[PrunedViT],
    models: Pair[LoweredFile],
    parity: Pair[ParityReport],
    use: PatchUse | None,
    measuring: Measuring,
) -> Report:
    """Return the report of what was made, before anything is measured."""
    pruned, macs = references.pruned, _macs(references, use)
    files = {role: each.path for role, each in vars(models).items()}
    return Report(
        model=pruned.vit.spec.name,
        target=models.pruned.artefact.target.name,
        schedule=pruned.schedule,
        files={role: path.name for role, path in files.items()},
        file_bytes={role: path.stat().st_size for role, path in files.items()},
        gmacs=Gmacs(
            macs.dense.gmacs,
            macs.pruned.gmacs,
            scoring=macs.pruned.scoring / 1e9,
            as_it_came=dense_macs(pruned.vit.spec.as_it_came).gmacs,
        ),
        preprocessing=pruned.vit.spec.preprocessing,
        parity=parity,
        hardware=environment(measuring.threads, installed=True),
        batch=measuring.batch,
        use=use,
        trtexec=_trtexec(models, measuring.batch),
    )


def _trtexec(models: Pair[LoweredFile], batch: int) -> tuple[str, ...]:
    """Return the lines of trtexec for files of TensorRT; none for others."""
    is_own = models.pruned.artefact.target.runtime == TENSORRT.runtime
    return tuple(folder_lines(models, BuildSettings(batches=(batch,)))) if is_own else ()


def _calibrated_on(calibration: Calibration) -> CalibratedOn:
    record = calibration.record
    return CalibratedOn(
        record.images, record.skipped, calibration.overlap_by_layer, dict(calibration.skipped)
    )


def _macs(references: Pair[PrunedViT], use: PatchUse | None) -> Pair[MacCount]:
    """Return the useful MACs per image of each model; under a-STAR the mean of `use`."""
    pruned = references.pruned.macs
    if use is not None:
        pruned = MacCount(use.useful_macs - use.scoring_macs, use.scoring_macs)
    return Pair(references.dense.macs, pruned)


def _parity(reference: PrunedViT, model: LoweredFile, images: Array, measuring: Measuring) -> ParityReport:
    return check(reference, load_onnx(model.path), images, threads=measuring.threads)


def _with_classes(
    reports: Sequence[Report],
    reference: PrunedViT,
    models: Sequence[Pair[LoweredFile]],
    seen: ImagePass,
    measuring: Measuring,
) -> list[Report]:
    """Return the reports with what the models say about the same images, of which all show the same.

    Below fp32, the model as it came answers too: PyTorch's dense reference.
    """
    runners, artefact = [*_runners(models, measuring).values()], models[0].dense.artefact
    if artefact.target.reduced:
        runners.append(reference_runner(reference, artefact.input_kind, threads=measuring.threads or None))
    dense, *found = predict_each(runners, _batches(seen, len(runners), models[0].dense, measuring))
    original = found.pop() if artefact.target.reduced else None
    examples = chosen_examples(seen.names, dense, found)
    return [
        replace(
            report,
            accuracy=Pair(dense.accuracy, each.accuracy) if dense.labelled else None,
            pair=_compared(dense, each, ("dense", "pruned")),
            in_fp32=None if original is None else _in_fp32(original, Pair(dense, each)),
            examples=shown,
            skipped=seen.skipped,
        )
        for report, each, shown in zip(reports, found, examples, strict=True)
    ]


def _in_fp32(original: Predictions, files: Pair[Predictions]) -> InFp32:
    losses = [_compared(original, each, ("fp32", role)) for role, each in vars(files).items()]
    return InFp32(original.accuracy if original.labelled else None, Pair(*losses))


def _compared(first: Predictions, second: Predictions, names: tuple[str, str]) -> PairResult:
    return replace(compare_predictions(first, second, names, {}), classes=())


def _with_agreement(
    reports: Sequence[Report],
    models: Sequence[Pair[LoweredFile]],
    seen: ImagePass,
    measuring: Measuring,
) -> list[Report]:
    name, runners = models[0].dense.artefact.spec.embedding, _runners(models, measuring)
    loaded = _batches(seen, len(runners), models[0].dense, measuring)
    dense, *found = embed_each([*runners.values()], loaded, [name] * len(runners))
    return [
        replace(report, agreement=agreement_of(dense, each), skipped=report.skipped | seen.skipped)
        for report, each in zip(reports, found, strict=True)
    ]


def _runners(models: Sequence[Pair[LoweredFile]], measuring: Measuring) -> dict[str, Runner]:
    """Return runners on the target's runtime: "dense", then one for each pruned model, by its number."""
    files = {"dense": models[0].dense} | {str(at): each.pruned for at, each in enumerate(models)}
    target = models[0].dense.artefact.target
    return {name: runner_here(each.path, target, measuring.threads) for name, each in files.items()}


def _pass(folder: ImageFolder, advance: Advance) -> ImagePass:
    return ImagePass(ImageSource(folder.root, folder.files, len(folder.files), {}), advance)


def _batches(seen: ImagePass, count: int, model: LoweredFile, measuring: Measuring) -> Batches:
    """Return the images for one pass of so many models, which take them alike."""
    view = View(model.artefact.spec.preprocessing, model.artefact.input_kind)
    return seen.feeds(batches_of(seen.source.files, [view] * count, measuring.batch))


def _as_it_came(
    dense: PrunedViT, file: LoweredFile, scratch: Path, measuring: Measuring
) -> dict[str, Runner]:
    """Return a runner of the model as its owner runs it, by name; none where the dense file is that model.

    It computes in fp32, and all tokens to the end: no speed-up over it hides what precision or the last layer gain.
    """
    target, spec = file.artefact.target, dense.vit.spec
    if not target.reduced and not spec.lone_layer:
        return {}
    same = (each for each in TARGETS.values() if each.runtime == target.runtime and not each.reduced)
    fp32 = next(same) if target.reduced else target
    path = scratch / fp32.file_name(spec.name, AS_IT_CAME)
    save_onnx(lower(steps.dense(as_it_came(dense.vit)), fp32, file.artefact.input_kind), path)
    return {AS_IT_CAME: runner_here(path, fp32, measuring.threads)}


def _speeds(
    runners: Mapping[str, Runner], images: Array, measuring: Measuring, macs: Sequence[Pair[MacCount]]
) -> list[tuple[AtBatch, ...]]:
    """Time all models in one run; return the times of each pruned one, beside the others, at every batch size."""
    sizes = tuple(sorted({measuring.batch, *measuring.more_batches}))
    settings = BenchSettings(batches=sizes, rounds=measuring.rounds)
    times = list(time_batches(runners, images, settings))
    return [
        tuple(AtBatch.of({**each, "pruned": each[str(at)]}, own) for each in times)
        for at, own in enumerate(macs)
    ]


def _use(pruned: PrunedViT, images: Array, input_kind: InputKind, batch: int) -> PatchUse:
    left = patches_left_of(pruned, images, input_kind, batch)
    return patch_use(pruned.vit.spec, pruned.schedule, left, pruned.layout, batch)


def pictures_of(
    reports: Sequence[Report],
    references: Sequence[Pair[PrunedViT]],
    calibrations: Sequence[Calibration | None],
    vit: PrunableViT,
    folder: ImageFolder | None,
) -> list[list[Picture]]:
    """Draw the examples of the reports with the patches that each PyTorch reference keeps of them.

    Where a schedule prunes by inter-layer scores, the first few also have their relevance, scored as the images of
    the calibration were.

    Args:
        reports: They have the same examples, or none: the first images are shown then.
        references: Each pruned model in PyTorch.
        calibrations: What each schedule was made from, if anything.
        vit: The model that was calibrated, with all its layers.
        folder: The images of the examples; None for no pictures.
    """
    if folder is None:
        return [[] for _ in reports]
    named = {folder.name_of(file): file for file in folder.files}
    examples = [named[each.image] for each in reports[0].examples]
    count = len(examples) or FIRST
    pixels = first_images(examples or folder.files, vit.spec.preprocessing, InputKind.UINT8, count)[:count]
    answers = []
    for reference in references:
        with reference_runner(reference.pruned, InputKind.UINT8) as runner:
            answers.append({**runner.run({IMAGES: pixels}), IMAGES: pixels})
    among = set.intersection(*({*keep_layers(each)} for each in answers))
    relevance: list[Array] = []
    pictures = []
    for each, reference, calibration in zip(answers, references, calibrations, strict=True):
        scores = calibration if reference.pruned.schedule.inter_sha256 else None
        if scores is not None and not relevance:
            relevance = [*relevance_maps(vit, pixels[:EXPLAINED], scores.record.settings)]
        shown = () if scores is None else relevance
        pictures.append(drawn(each, reference.pruned.vit.spec.grid, shown, among))
    return pictures


def save_page_of(
    report: Report,
    artefact: Artefact,
    pictures: Sequence[Picture],
    out: Path,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Write the page of an export folder, with what the user set, and return its name."""
    chart = _chart(report.trade_off, report.model)
    save_page(report, artefact, out / PAGE, pictures=pictures, chart=chart, settings=settings)
    return PAGE


def save_comparison_of(made: Mapping[str, Shown], out: Path) -> str:
    """Write the page that shows several methods side by side, and return its name.

    Each method's own page is in a folder of its name.
    """
    reports = [report for report, _ in made.values()]
    chart = _chart(trade_off_of(reports), reports[0].model)
    save_comparison(made, out / PAGE, page=PAGE, chart=chart)
    return PAGE


def _chart(trade_off: TradeOff | None, model: str) -> Chart | None:
    if trade_off is None:
        return None
    from exporter.evaluation.report.chart import chart_of  # noqa: PLC0415  (matplotlib is slow to load)

    return chart_of(trade_off, model)
