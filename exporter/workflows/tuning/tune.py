"""Find a model: search, judge the choice, and leave its recipe, its export folder and the front."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from exporter.calibration.record import Calibration
from exporter.data.images import ImageFolder, listing_sha256, sample
from exporter.data.source import images_at
from exporter.errors import ImageError, RecipeError
from exporter.files import PathLike, writable_folder, written_beside
from exporter.formats.canonical_json import save_json, to_json
from exporter.lowering.pipeline import save_onnx
from exporter.models.base import PrunableViT
from exporter.runtimes.choice import why_not
from exporter.schedule.scorers import FUSED
from exporter.targets import ONNXRUNTIME, TARGETS, Target
from exporter.training.result import versions
from exporter.workflows import steps
from exporter.workflows.compile import compile_model
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipe import Recipe, needed, read_recipe
from exporter.workflows.requests import Lowering
from exporter.workflows.resolve import Job, resolve
from exporter.workflows.tuning.bench import DENSE, Bench
from exporter.workflows.tuning.choice import Judged, chosen, front, images_needed
from exporter.workflows.tuning.halves import halves
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.result import Baseline, Tuned, explained, recipe_of, save_recipe
from exporter.workflows.tuning.settings import TuneSettings
from exporter.workflows.tuning.study import Speeds, Study

__all__ = ["tune"]

RECIPE, FRONT, CHART, COMPILED = "tune.toml", "front.json", "front.png", "compiled"
CALIBRATION, MEASUREMENTS = "calibration.safetensors", "measurements"


def tune(
    recipe: Recipe,
    settings: TuneSettings,
    out: PathLike,
    *,
    stages: Stages | None = None,
    command: Sequence[str] = (),
) -> Tuned:
    """Search the recipe's model; write recipe, export folder, front and chart to `out`.

    Args:
        recipe: The model, the images to calibrate on (`images`) and to measure on (`eval_images`), batch, rounds.
        settings: What to find.
        out: A folder. It keeps all measurements: after an interruption the same call repeats none.
        stages: Shows progress.
        command: Written into the recipe.

    Raises:
        UserError: The recipe cannot be carried out, or a limit cannot be met by any choice.
    """
    stages, place, job = stages or Silent(), writable_folder(Path(out)), resolve(recipe)
    targets = _targets(job, settings)
    with stages.stage("model"):
        vit = steps.load_model(job.model, job.device)
        search, final = _halves(job, vit, settings)
    calibration = _calibration(vit, recipe, place, stages)
    ledger = Ledger(place / MEASUREMENTS, _identity(vit, search, final, job))
    study = Study(Bench(vit, calibration, job, ledger), search, final, settings, targets, stages)
    found, rho, verdict = _searched(study)
    save_json({"front": found.front, "tried": found.tried, "dense": found.dense}, place / FRONT)
    _draw(found, place / CHART)
    if found.choice is None or verdict is None:
        return found
    candidate = found.choice.candidate
    save_recipe(recipe_of(recipe, candidate, rho, place / CALIBRATION), place / RECIPE, command)
    if candidate.mac_reduction:
        compile_model(Recipe(**read_recipe(place / RECIPE)), place / COMPILED, stages=stages)
    else:
        _export_unpruned(study.bench, TARGETS[candidate.target], place / COMPILED)
    return replace(
        found,
        recipe=str(place / RECIPE),
        status=verdict.status,
        loss_points=verdict.loss_points,
        bound_points=verdict.bound_points,
        images_per_s=found.choice.images_per_s,
        gain=found.choice.gain,
    )


def _searched(study: Study) -> tuple[Tuned, float, Judged | None]:
    """Run the stages of a search; return what was found, the rho of the choice, and the judgement of it."""
    settings = study.settings
    study.check_limits()
    schedules = study.schedules()
    answers, left = study.accuracy(schedules)
    speeds = study.speeds(schedules, answers)
    points = study.points(schedules, answers, speeds)
    choice = chosen(points, settings.max_drop, settings.max_ms)
    schedule = None if choice is None else schedules.get(choice.candidate.on(""))
    verdict = None if choice is None else study.judged(choice, schedule)
    found = Tuned(
        model=study.bench.vit.spec.name,
        metric=settings.metric,
        max_drop=settings.max_drop,
        max_ms=settings.max_ms,
        dense_top1=float(answers.dense.mean()) if settings.metric == "top1" else None,
        images_search=len(answers.dense),
        images_final=len(study.final.files),
        candidates=left[0].before,
        tried=points,
        front=front(points),
        dense=_baselines(speeds),
        choice=choice,
        explanation=explained(choice, verdict, points, _limit(settings)),
    )
    return found, 1.0 if schedule is None or schedule.rho is None else schedule.rho, verdict


def _export_unpruned(bench: Bench, target: Target, folder: Path) -> None:
    """Write the one model of a choice that prunes nothing: there is no pair to compare."""
    dense = steps.dense(bench.vit)
    path = folder / target.file_name(bench.vit.spec.name, dense.method)
    save_onnx(steps.export(dense, Lowering(target), bench.ranges), path)


def _targets(job: Job, settings: TuneSettings) -> tuple[Target, ...]:
    """Return the targets that run here, of one runtime if it is named.

    Raises:
        RecipeError: The recipe has an amount to prune, or rounds are 0.
        UserError: The runtime is not here.
    """
    if job.amount is not None:
        raise RecipeError("tune", "an amount to prune", "none: it is what is searched for")
    needed(job.measuring.rounds or None, "--rounds", "at least 5: speeds are measured")
    named = [each for each in TARGETS.values() if settings.runtime in (None, each.runtime)]
    reasons = {each.name: why_not(each) for each in named}
    here = tuple(each for each in named if not reasons[each.name])
    if not here:
        got = next(iter(reasons.values()), "a runtime without a target")
        raise RecipeError("runtime", f"{settings.runtime}: {got}", "one that runs here")
    return here


def _halves(job: Job, vit: PrunableViT, settings: TuneSettings) -> tuple[ImageFolder, ImageFolder]:
    """Split the evaluation images.

    Raises:
        ImageError: There are too few, or labels are missing.
    """
    expected = "images to measure on, which calibration does not see"
    images, place = job.images, needed(job.images.eval_images, "--eval-images", expected)
    labelled = settings.metric == "top1"
    found = images_at(place, vit.spec.num_classes, images.class_map, labels=labelled)
    if labelled and not found.labelled:
        hint = "--metric agreement needs none"
        raise ImageError(str(place), "images without classes", "one folder of images per class", hint)
    search, final = halves(sample(found, images.max_eval_images, images.seed), images.seed)
    if not search.files or not final.files:
        raise ImageError(str(place), f"{len(found.files)} images", "at least 2 for each class")
    if settings.confident and settings.max_drop is not None:
        enough = images_needed({"lost": 0.0, "gained": 0.0}, settings.max_drop)
        if len(final.files) < enough:
            got = f"{len(final.files)} images in the final half"
            raise ImageError("confident", got, f"at least {enough}", f"for {settings.max_drop:g} points")
    return search, final


def _calibration(vit: PrunableViT, recipe: Recipe, place: Path, stages: Stages) -> Calibration | None:
    """Return a calibration with the scores of every candidate; None without images to calibrate on."""
    if recipe.images is None and recipe.calibration is None:
        return None
    job = resolve(replace(recipe, scorer=FUSED.name))
    with stages.stage("calibration") as advance:
        return steps.calibrate(vit, job.calibration, job.images, place / CALIBRATION, advance)


def _identity(vit: PrunableViT, search: ImageFolder, final: ImageFolder, job: Job) -> str:
    listings = [listing_sha256(each) for each in (search, final)]
    measuring = to_json(job.measuring)
    return to_json(
        {"weights": vit.weights_sha256, "images": listings, "how": measuring, "versions": versions()}
    )


def _baselines(speeds: Speeds) -> tuple[Baseline, ...]:
    dense = {target: speed for (name, target), speed in speeds.items() if name == DENSE}
    base = dense[ONNXRUNTIME.name]
    return tuple(
        Baseline(target, each.images_per_s, each.images_per_s / base.images_per_s, each.file_bytes)
        for target, each in dense.items()
    )


def _limit(settings: TuneSettings) -> str:
    if settings.max_ms is not None:
        return f"{settings.max_ms:g} ms"
    return f"{settings.max_drop:g} points"


def _draw(found: Tuned, path: Path) -> None:
    """Draw all points, the front and the unpruned models."""
    from exporter.evaluation.report.chart import front_chart  # noqa: PLC0415  (matplotlib is slow to load)

    content = front_chart(
        [(each.images_per_s, -each.loss_points) for each in found.tried],
        [(each.images_per_s, -each.loss_points) for each in found.front],
        {each.target: each.images_per_s for each in found.dense},
        title=found.model,
    )
    with written_beside(path) as partial:
        partial.write_bytes(content)
