"""Find a model: search, judge the choice, and leave its recipe, its export folder and the front."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from exporter.evaluation.benchmark.timing import TradeOff
from exporter.files import PathLike, writable_folder
from exporter.formats.canonical_json import save_json
from exporter.lowering.pipeline import save_onnx
from exporter.models.base import PrunableViT
from exporter.processes import processes
from exporter.targets import ONNXRUNTIME, TARGETS
from exporter.workflows import steps
from exporter.workflows.compiling.compile import compile_model
from exporter.workflows.dry_run import DryRun, dry_run
from exporter.workflows.folders.stale import finish_folder
from exporter.workflows.memory import check_batches
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipes.recipe import Recipe, read_recipe
from exporter.workflows.recipes.requests import Lowering
from exporter.workflows.tuning.axes import OWN, UNPRUNED, Candidate
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.choice import chosen, front
from exporter.workflows.tuning.inputs import (
    amount_of,
    candidates_of,
    halves_of,
    ledger_of,
    targets_here,
    timing_images,
)
from exporter.workflows.tuning.jobs import jobs_of
from exporter.workflows.tuning.networks import Network, calibrated, calibration_skipped, load_vits
from exporter.workflows.tuning.result import (
    CHART,
    COMPILED,
    FRONT,
    RECIPE,
    Baseline,
    Tuned,
    explained,
    recipe_of,
    save_recipe,
)
from exporter.workflows.tuning.settings import TuneSettings
from exporter.workflows.tuning.study import Speeds, Study
from exporter.workflows.tuning.trade_off import save_trade_off_chart, trade_off_of_search

__all__ = ["dry_tune", "tune"]


def tune(
    recipe: Recipe,
    settings: TuneSettings,
    out: PathLike,
    *,
    model: PrunableViT | nn.Module | None = None,
    weights: Sequence[PathLike] = (),
    compiled: PathLike | None = None,
    stages: Stages | None = None,
    command: Sequence[str] = (),
) -> Tuned:
    """Search the recipe's model; write recipe, export folder, front and chart to `out`.

    Under a launcher, all processes call this and share the runs for accuracy; the main one times and writes.

    Args:
        recipe: The model, the images to calibrate on (`images`) and to measure on (`eval_images`), batch, rounds;
            method, scorer, reduce, alpha, rho and mac_reduction pin an axis.
        settings: What to find.
        out: A folder. It keeps all measurements: after an interruption the same call repeats none.
        model: A ViT to use instead of the recipe's, an adapter or a module; it is not changed. The recipe that is
            found does not name it: `compile` takes it beside the recipe.
        weights: Checkpoints of the model, depth-pruned or fine-tuned, to be tried beside its own weights.
        compiled: The export folder; by default in `out`.
        stages: Shows progress.
        command: Written into the recipe.

    Raises:
        UserError: The recipe cannot be carried out, or a limit cannot be met by any choice.
    """
    stages, place = stages or Silent(), writable_folder(Path(out))
    jobs = jobs_of(recipe, [Path(each) for each in weights])
    job, targets = jobs[OWN], targets_here(settings)
    amount_of(job)
    steps.warn_where_slow(*targets)
    vits = load_vits(jobs, stages, model)
    check_batches("--batch", (job.measuring.batch,), vits[OWN].spec)
    search, final = halves_of(job.images, vits[OWN], settings)
    ledger = ledger_of(place, job, search, final)
    networks = calibrated(jobs, vits, place, ledger, stages)
    every = candidates_of(job, networks)
    with TemporaryDirectory(prefix="star-export-") as scratch:
        pixels = timing_images(job.images, networks[OWN].vit.spec, job.measuring.batch)
        bench = Bench(networks, job, ledger, Path(scratch), pixels)
        found = _searched(Study(bench, search, final, settings, targets, stages), every)
        if not processes().main:
            return found
        save_json({"front": found.front, "tried": found.tried, "dense": found.dense}, place / FRONT)
        trade_off = trade_off_of_search(found, job.measuring.batch)
        save_trade_off_chart(trade_off, found.model, place / CHART)
        if found.choice is None:
            (place / RECIPE).unlink(missing_ok=True)  # an earlier search's
            return found
        values = recipe_of(recipe, found.choice.candidate, bench)
        save_recipe(values, place / RECIPE, command)
        folder = Path(compiled or place / COMPILED)
        candidate = found.choice.candidate
        own = model if candidate.weights == OWN else None
        parity = _export(bench, candidate, place / RECIPE, folder, own, stages=stages, trade_off=trade_off)
    return replace(found, recipe=str(place / RECIPE), parity=parity)


def dry_tune(
    recipe: Recipe, settings: TuneSettings, out: PathLike, *, weights: Sequence[PathLike] = ()
) -> DryRun:
    """Check what `tune` checks before its first measurement, weights included; nothing is written.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    writable_folder(Path(out))
    jobs = jobs_of(recipe, [Path(each) for each in weights])
    job = jobs[OWN]
    targets_here(settings)
    amount_of(job)
    vits = load_vits(jobs, Silent())
    halves_of(job.images, vits[OWN], settings)
    candidates_of(job, {name: Network(vit) for name, vit in vits.items()})
    return dry_run(vits[OWN], job, recipe, settings, unknown="the search")


def _searched(study: Study, every: Sequence[Candidate]) -> Tuned:
    """Run the stages of a search."""
    settings = study.settings
    measured = study.measured(every)
    answers, points = measured.answers, measured.points
    choice = chosen(points, settings.max_drop, settings.max_ms)
    verdict = None if choice is None else study.judged(choice)
    limit = f"{settings.max_drop:g} points" if settings.max_ms is None else f"{settings.max_ms:g} ms"
    found = Tuned(
        model=study.bench.vit.spec.name,
        metric=settings.metric,
        max_drop=settings.max_drop,
        max_ms=settings.max_ms,
        dense_top1=float(answers.dense.mean()) if settings.metric == "top1" else None,
        images_search=len(answers.dense),
        images_final=len(study.final.files),
        candidates=measured.tried,
        tried=points,
        front=front(points),
        dense=_unpruned(study.first_measurements.baselines),
        explanation=explained(choice, verdict, points, limit),
        skipped=dict(sorted(study.bench.skipped.items())),
        calibration_skipped=calibration_skipped(study.bench.networks),
    )
    return found if choice is None or verdict is None else found.with_choice(choice, verdict)


def _export(
    bench: Bench,
    candidate: Candidate,
    recipe: Path,
    folder: Path,
    own: PrunableViT | nn.Module | None,
    *,
    stages: Stages,
    trade_off: TradeOff,
) -> bool | None:
    """Write the export folder of the choice, and return whether it agrees with PyTorch.

    A choice that prunes nothing is one file: there is no pair to compare.
    """
    if candidate.prunes:
        told = Recipe(**read_recipe(recipe))
        return compile_model(told, folder, model=own, stages=stages, trade_off=trade_off).passed
    dense, target = steps.dense(bench.networks[candidate.weights].vit), TARGETS[candidate.target]
    path = folder / target.file_name(bench.vit.spec.name, dense.method)
    save_onnx(steps.export(dense, Lowering(target), bench.ranges), path)
    finish_folder(folder, [path.name], bench.job.calibration.path)
    return None


def _unpruned(speeds: Speeds) -> tuple[Baseline, ...]:
    """Return the unpruned model on every target, from the run that has all of them."""
    base = speeds[UNPRUNED.on(ONNXRUNTIME.name)]
    return tuple(
        Baseline(each.target, speed.images_per_s, speed.images_per_s / base.images_per_s, speed.file_bytes)
        for each, speed in speeds.items()
        if each == UNPRUNED.on(each.target)
    )
