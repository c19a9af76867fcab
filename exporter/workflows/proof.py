"""Compare the models of a compilation with PyTorch, measure their accuracy and speed, and show it on pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.artefact import Artefact, LoweredFile
from exporter.calibration.calibrate import relevance_maps
from exporter.calibration.record import Calibration
from exporter.data.batches import first_images
from exporter.data.images import ImageFolder
from exporter.evaluation.accuracy import Predictions
from exporter.evaluation.batch_sweep import AS_IT_CAME, AtBatch, BenchSettings, time_batches
from exporter.evaluation.loss import agreement_of, compare_predictions
from exporter.evaluation.parity.checks import ParityReport
from exporter.evaluation.parity.reference import check, patches_left_of, reference_runner
from exporter.evaluation.report.page import Picture, drawn
from exporter.evaluation.report.record import (
    CalibratedOn,
    Gmacs,
    InFp32,
    Report,
    chosen_examples,
)
from exporter.formats.onnx_file import load_onnx
from exporter.lowering.pipeline import lower, save_onnx
from exporter.machine import environment
from exporter.models.base import PrunableViT
from exporter.models.spec import as_it_came
from exporter.processes import Processes
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Pair
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_here
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.trtexec import folder_lines
from exporter.schedule.macs import MacCount, PatchUse, dense_macs, patch_use
from exporter.targets import TARGETS
from exporter.tensor_names import IMAGES, Array, keep_layers
from exporter.vocabulary import InputKind
from exporter.workflows import steps
from exporter.workflows.predicting import (
    Answers,
    EvalModel,
    embed_models,
    lowered_model,
    predict_models,
    torch_model,
)
from exporter.workflows.progress import Stages
from exporter.workflows.recipe import Measuring

# Images that are shown of a model without classes.
FIRST = 4
# What is compiled under a launcher, the main process compiles.
ALONE = Processes()
# Images whose relevance is shown: of a large model it takes seconds each.
EXPLAINED = 4


@dataclass(frozen=True, eq=False)
class Made:
    """A pruned model: in PyTorch and lowered, each beside the dense one, and what its schedule was made from.

    Those of one compilation share the dense model.
    """

    references: Pair[PrunedViT]
    models: Pair[LoweredFile]
    calibration: Calibration | None = None

    @property
    def spec(self) -> ModelSpec:
        """The shape of the models."""
        return self.references.pruned.vit.spec

    @property
    def artefact(self) -> Artefact:
        """What the lowered models are."""
        return self.models.pruned.artefact


def prove(
    made: Sequence[Made],
    *,
    folder: ImageFolder | None,
    images: Array,
    measuring: Measuring,
    stages: Stages,
) -> list[Report]:
    """Compare models with their references, then with the dense one, in the same runs; return a report for each.

    Args:
        made: The models.
        folder: Images for accuracy, which is measured if all have labels; without, the models are compared. None
            where there are only images to check: noise.
        images: [n, 3, H, W] for parity and speed, as the models take them.
        measuring: Threads, batch and rounds.
        stages: Shows progress.
    """
    first, models = made[0], _models(made, measuring)
    reports = _with_parity(made, images, measuring, stages)
    if folder is None:
        reports = [replace(each, measured_on="noise") for each in reports]
    if folder is not None and first.spec.num_classes:
        asked = [*models, *_in_fp32(first, measuring)]
        with stages.stage("accuracy" if folder.labelled else "agreement of classes") as advance:
            classes = predict_models(asked, folder, measuring.batch, advance, crew=ALONE)
        reports = _with_classes(reports, classes)
    if folder is not None and first.spec.embedding:
        with stages.stage("agreement of embeddings") as advance:
            embedded = embed_models(models, folder, measuring.batch, advance, crew=ALONE)
        dense, *others = embedded.found
        reports = [
            replace(
                report,
                agreement=agreement_of(dense, each),
                skipped=report.skipped | embedded.skipped,
            )
            for report, each in zip(reports, others, strict=True)
        ]
    if measuring.rounds:
        macs = [_macs(each, report.use) for each, report in zip(made, reports, strict=True)]
        with stages.stage("throughput"), TemporaryDirectory(prefix="star-export-") as scratch:
            came = _as_it_came(first, Path(scratch), measuring)
            runners = {each.name: each.runner for each in models} | came
            batches = _speeds(runners, images, measuring, macs)
        reports = [
            replace(each, batches=own) for each, own in zip(reports, batches, strict=True)
        ]
    return reports


def _with_parity(
    made: Sequence[Made], images: Array, measuring: Measuring, stages: Stages
) -> list[Report]:
    """Return the reports of what was made, before anything is measured but parity and the patches that are left."""
    with stages.stage("parity, dense"):
        dense = _parity(made[0].references.dense, made[0].models.dense, images, measuring)
    reports = []
    for each in made:
        pruned = each.references.pruned
        with stages.stage(f"parity, {pruned.method}"):
            parity = Pair(dense, _parity(pruned, each.models.pruned, images, measuring))
        use = None
        if pruned.schedule.adaptive:
            with stages.stage("patches left"):
                left = patches_left_of(
                    pruned, images, each.artefact.input_kind, measuring.batch
                )
                use = patch_use(
                    each.spec, pruned.schedule, left, pruned.layout, measuring.batch
                )
        reports.append(_report(each, parity, use, measuring))
    return reports


def _report(
    made: Made, parity: Pair[ParityReport], use: PatchUse | None, measuring: Measuring
) -> Report:
    macs = _macs(made, use)
    files = {role: each.path for role, each in vars(made.models).items()}
    lines = list[str]()
    if made.artefact.target.runtime.engines:
        lines = folder_lines(made.models, BuildSettings(batches=(measuring.batch,)))
    return Report(
        model=made.spec.name,
        target=made.artefact.target.name,
        schedule=made.references.pruned.schedule,
        files={role: path.name for role, path in files.items()},
        file_bytes={role: path.stat().st_size for role, path in files.items()},
        gmacs=Gmacs(
            macs.dense.gmacs,
            macs.pruned.gmacs,
            scoring=macs.pruned.scoring / 1e9,
            as_it_came=dense_macs(made.spec.as_it_came).gmacs,
        ),
        preprocessing=made.spec.preprocessing,
        parity=parity,
        hardware=environment(measuring.threads, installed=True),
        batch=measuring.batch,
        use=use,
        calibration=_calibrated_on(made.calibration),
        class_names=made.spec.class_names,
        trtexec=tuple(lines),
    )


def _calibrated_on(calibration: Calibration | None) -> CalibratedOn | None:
    if calibration is None:
        return None
    record, overlap = calibration.record, calibration.overlap_by_layer
    return CalibratedOn(record.images, record.skipped, overlap, dict(calibration.skipped))


def _macs(made: Made, use: PatchUse | None) -> Pair[MacCount]:
    """Return the useful MACs per image of each model; under a-STAR the mean of `use`."""
    pruned = made.references.pruned.macs
    if use is not None:
        pruned = MacCount(use.useful_macs - use.scoring_macs, use.scoring_macs)
    return Pair(made.references.dense.macs, pruned)


def _parity(
    reference: PrunedViT, model: LoweredFile, images: Array, measuring: Measuring
) -> ParityReport:
    return check(reference, load_onnx(model.path), images, threads=measuring.threads)


def _models(made: Sequence[Made], measuring: Measuring) -> list[EvalModel]:
    """Return the files on the target's runtime: "dense", then each pruned model, by its number."""
    files = {"dense": made[0].models.dense} | {
        str(at): each.models.pruned for at, each in enumerate(made)
    }
    settings = on_this_cpu(made[0].artefact.target, measuring.threads)
    return [lowered_model(file, settings, name) for name, file in files.items()]


def _in_fp32(made: Made, measuring: Measuring) -> list[EvalModel]:
    """Return PyTorch's dense reference where the target computes in less than fp32."""
    if not made.artefact.target.reduced:
        return []
    kind = made.artefact.input_kind
    return [
        torch_model(made.references.dense, "fp32", threads=measuring.threads, input_kind=kind)
    ]


def _with_classes(reports: Sequence[Report], answers: Answers[Predictions]) -> list[Report]:
    """Return the reports with what the models say about the same images, of which all show the same.

    The models are the dense one, that of each report, and the one in fp32 where there is one.
    """
    dense, *found = answers.found
    original = found.pop() if len(found) > len(reports) else None
    examples = chosen_examples(answers.names, dense, found)
    return [
        replace(
            report,
            accuracy=Pair(dense.accuracy, each.accuracy) if dense.labelled else None,
            pair=compare_predictions(dense, each, ("dense", "pruned")),
            in_fp32=None if original is None else _losses(original, Pair(dense, each)),
            examples=shown,
            skipped=answers.skipped,
        )
        for report, each, shown in zip(reports, found, examples, strict=True)
    ]


def _losses(original: Predictions, files: Pair[Predictions]) -> InFp32:
    losses = [
        compare_predictions(original, each, ("fp32", role))
        for role, each in vars(files).items()
    ]
    return InFp32(original.accuracy if original.labelled else None, Pair(*losses))


def _as_it_came(made: Made, scratch: Path, measuring: Measuring) -> dict[str, Runner]:
    """Return a runner of the model as its owner runs it, by name; none where the dense file is that model.

    It computes in fp32, and all tokens to the end: no speed-up over it hides what precision or the last layer gain.
    """
    target, input_kind = made.artefact.target, made.artefact.input_kind
    if not target.reduced and not made.spec.lone_layer:
        return {}
    same = (
        each for each in TARGETS.values() if each.runtime == target.runtime and not each.reduced
    )
    fp32 = next(same) if target.reduced else target
    path = scratch / fp32.file_name(made.spec.name, AS_IT_CAME)
    dense = steps.dense(as_it_came(made.references.dense.vit))
    save_onnx(lower(dense, fp32, input_kind), path)
    return {AS_IT_CAME: runner_here(path, fp32, measuring.threads)}


def _speeds(
    runners: Mapping[str, Runner],
    images: Array,
    measuring: Measuring,
    macs: Sequence[Pair[MacCount]],
) -> list[tuple[AtBatch, ...]]:
    """Time all models in one run; return the times of each pruned one, beside the others, at every batch size."""
    sizes = tuple(sorted({measuring.batch, *measuring.more_batches}))
    settings = BenchSettings(batches=sizes, rounds=measuring.rounds)
    times = list(time_batches(runners, images, settings))
    return [
        tuple(AtBatch.of({**each, "pruned": each[str(at)]}, own) for each in times)
        for at, own in enumerate(macs)
    ]


def pictures_of(
    reports: Sequence[Report],
    made: Sequence[Made],
    vit: PrunableViT,
    folder: ImageFolder | None,
) -> list[list[Picture]]:
    """Draw the examples of the reports with the patches that each PyTorch reference keeps of them.

    Where a schedule prunes by inter-layer scores, the first few also have their relevance, scored as the images of
    the calibration were.

    Args:
        reports: They have the same examples, or none: the first images are shown then.
        made: The models of the reports.
        vit: The model that was calibrated, with all its layers.
        folder: The images of the examples; None for no pictures.
    """
    if folder is None:
        return [[] for _ in reports]
    named = {folder.name_of(file.path): file for file in folder.files}
    examples = [named[each.image] for each in reports[0].examples]
    count = len(examples) or FIRST
    pixels = first_images(
        examples or folder.files, vit.spec.preprocessing, InputKind.UINT8, count
    )[:count]
    answers = []
    for each in made:
        with reference_runner(each.references.pruned, InputKind.UINT8) as runner:
            answers.append({**runner.run({IMAGES: pixels}), IMAGES: pixels})
    among = set.intersection(*({*keep_layers(each)} for each in answers))
    relevance: list[Array] = []
    pictures = []
    for answer, each in zip(answers, made, strict=True):
        scores = each.calibration if each.references.pruned.schedule.inter_sha256 else None
        if scores is not None and not relevance:
            relevance = [*relevance_maps(vit, pixels[:EXPLAINED], scores.record.settings)]
        shown = () if scores is None else relevance
        pictures.append(drawn(answer, each.spec.grid, shown, among))
    return pictures
