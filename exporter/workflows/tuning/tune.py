"""Find a model: screen the ways, time what is left, judge the choice; it leaves a recipe and an export folder."""

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from exporter.data.images import ImageFolder, listing_sha256, sample, split
from exporter.data.source import class_mismatch, images_at
from exporter.errors import ImageError, ModelError, RecipeError
from exporter.evaluation.benchmark import (
    TradeOff,
    TradePoint,
    front_of,
    ratio_of,
)
from exporter.files import PathLike, writable_folder, written_beside
from exporter.formats.canonical_json import save_json
from exporter.lowering.pipeline import lower, save_onnx
from exporter.machine import job_identity
from exporter.processes import processes
from exporter.records import Schedule
from exporter.runtimes.choice import targets_here
from exporter.schedule.policy import UNSAID, MacShare, Rho
from exporter.schedule.prune import SCORING, Prune
from exporter.targets import ONNXRUNTIME, TARGETS
from exporter.vocabulary import Precision
from exporter.workflows import steps
from exporter.workflows.compile import compile_model
from exporter.workflows.folders.export_folder import finish_folder
from exporter.workflows.opened import DryRun, Opened, dry_run, open_recipe, warn_where_slow
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipe import Recipe, check_batches, needed, save_recipe
from exporter.workflows.steps import OwnModel
from exporter.workflows.tuning.choice import (
    ROUNDING,
    USUAL,
    Judged,
    Point,
    TuneResult,
    TuneSettings,
    around,
    chosen,
    different,
    images_needed,
    judged,
    loss_of_choice,
    point_of,
    qualifies,
)
from exporter.workflows.tuning.measured import Book, Meter, calibrated
from exporter.workflows.tuning.ways import AXES, OWN, UNPRUNED, Candidate, Way, ways_of

# What a search writes to its folder.
RECIPE, FRONT, CHART, COMPILED = "tune.toml", "front.json", "front.png", "compiled"
MEASUREMENTS = "measurements.jsonl"
# Images of the search half on which ways are screened.
SCREENED = 256
# At about this share of saved multiply-adds ways are screened.
AT_SHARE = 0.4
# Candidates to be timed: about so many in all, and no fewer of a way.
TIMED, OF_A_WAY = 12, 3
# A target on which the unpruned model has less than this share of the best speed is timed once.
WORTH = 0.75
# The unpruned model that all others are compared with.
BASE = UNPRUNED.on(ONNXRUNTIME.name)
# What a recipe leaves open where it compiles a choice, and what another checkpoint says itself.
FREE: Mapping[str, Any] = dict.fromkeys((*AXES, "calibration", "rho", "mac_reduction"))
OWN_VALUES: Mapping[str, Any] = {
    "num_classes": None,
    "name": "",
    "model_kwargs": {},
    "preprocess": {},
    "recalibrate": False,
}

logger = logging.getLogger(__name__)


def tune(
    recipe: Recipe,
    settings: TuneSettings,
    out: PathLike,
    *,
    model: OwnModel | None = None,
    weights: Sequence[PathLike] = (),
    stages: Stages | None = None,
    command: Sequence[str] = (),
) -> TuneResult:
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
        stages: Shows progress.
        command: Written into the recipe.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    stages, place, recipes = (
        stages or Silent(),
        writable_folder(Path(out)),
        _recipes(recipe, weights),
    )
    networks = _networks(recipes, settings, stages, model)
    parts = _parts(networks[OWN], settings)
    book = Book(place / MEASUREMENTS, _identity(networks[OWN], parts))
    with TemporaryDirectory(prefix="star-export-") as scratch:
        meter = Meter(networks, book, Path(scratch), parts, settings.metric)
        found = _Search(meter, settings, place, stages).found()
        if not processes().main:
            return found
        trade_off = _trade_off(found, recipe.measure.batch)
        save_json(
            {"front": found.front, "tried": found.tried, "unpruned": found.unpruned},
            place / FRONT,
        )
        _save_chart(trade_off, found.model, place / CHART)
        if found.choice is None:
            (place / RECIPE).unlink(missing_ok=True)  # an earlier search's
            return found
        choice = found.choice.candidate
        best = _recipe_of(recipes[choice.weights], choice, meter)
        save_recipe(best, place / RECIPE, f"Found by: {shlex.join(command)}" if command else "")
        if choice.prune is not None:
            own = model if choice.weights == OWN else None
            report = compile_model(best, place / COMPILED, own, stages, trade_off=trade_off)
            return replace(found, recipe=str(place / RECIPE), parity=report.passed)
        _save_unpruned(meter, choice, place / COMPILED)
    return replace(found, recipe=str(place / RECIPE))


def dry_tune(
    recipe: Recipe, settings: TuneSettings, out: PathLike, *, weights: Sequence[PathLike] = ()
) -> DryRun:
    """Check what `tune` checks before its first measurement, weights included; nothing is written."""
    writable_folder(Path(out))
    networks = _networks(_recipes(recipe, weights), settings, Silent())
    ways, images = len(_ways(networks)), len(_parts(networks[OWN], settings)["screen"].files)
    unknown = f"the search, which screens {ways} ways on {images} images each"
    return dry_run(networks[OWN], recipe, settings, unknown=unknown)


def _recipes(recipe: Recipe, weights: Sequence[PathLike]) -> dict[str, Recipe]:
    """Return the recipes of the model and of other checkpoints, which say themselves which networks they are."""
    files = [Path(each) for each in weights]
    others = {
        path.stem: recipe.but(prune=FREE, model={**OWN_VALUES, "checkpoint": path})
        for path in files
    }
    if len(others) < len(files):
        names = ", ".join(path.stem for path in files)
        raise RecipeError("weights", names, "files of different names")
    return {OWN: recipe, **others}


def _networks(
    recipes: Mapping[str, Recipe],
    settings: TuneSettings,
    stages: Stages,
    model: OwnModel | None = None,
) -> dict[str, Opened]:
    """Load the networks after all checks of settings, that of the model first."""
    targets = targets_here(settings.runtime, settings.target)
    every = {
        name: open_recipe(each, stages, model if name == OWN else None)
        for name, each in recipes.items()
    }
    own = every[OWN].recipe
    needed(own.measure.rounds or None, "--rounds", "at least 5: speeds are measured")
    amount = every[OWN].policy.amount
    if amount != UNSAID and not isinstance(amount, Rho | MacShare):
        hint = "--weights FILE tries a fine-tuned checkpoint as it was trained"
        raise RecipeError(
            "tune", "rates", "rho, mac_reduction, or no amount: it is searched for", hint
        )
    if ranged := next((each for each in targets if each.takes_ranges), None):
        expected = f"a folder of images, for the activation ranges of {ranged.name}; or --runtime onnxruntime"
        needed(own.images.images, "--images", expected)
    classes = every[OWN].whole.spec.num_classes
    for opened in every.values():
        spec = opened.whole.spec
        if not classes:
            got = "a model without logits, which has no top-1"
            hint = "text_embeddings in a recipe makes a tower one; compile --rho R says how its embeddings agree"
            raise RecipeError(spec.name, got, "a classifier", hint)
        if spec.num_classes != classes:
            got = f"{spec.num_classes} classes"
            raise ModelError(
                str(opened.recipe.model.checkpoint), got, f"{classes}, as the model has"
            )
    check_batches("--batch", (own.measure.batch,), every[OWN].whole.spec)
    warn_where_slow(*targets)
    return every


def _parts(opened: Opened, settings: TuneSettings) -> dict[str, ImageFolder]:
    """Split the evaluation images: "screen" and "rest" are the search half, "final" is the other one.

    Say what so few images cannot show.
    """
    images, spec = opened.recipe.images, opened.whole.spec
    expected = "images to measure on, which calibration does not see"
    place, labelled = (
        needed(images.eval_images, "--eval-images", expected),
        settings.metric == "top1",
    )
    if images.images is not None:
        _ = opened.folder  # those to calibrate on are read later, after measurements
    classes = spec.num_classes if labelled else None
    found = images_at(place, classes, images.class_map, names=spec.class_names)
    if labelled and not found.labelled:
        got = class_mismatch(found, spec.num_classes) or "images without classes"
        expected, hint = (
            f"one folder of images for each of {classes} classes",
            "--metric agreement needs none",
        )
        raise ImageError(str(place), got, expected, hint)
    search, final = split(sample(found, images.max_eval_images, images.seed), 0.5, images.seed)
    count, most = len(final.files), settings.max_drop
    if not count:
        raise ImageError(str(place), f"{len(found.files)} images", "at least 2 for each class")
    if most is not None and count < images_needed(most, USUAL):
        logger.warning(
            "%d images are in the final half: to show a loss within %g points takes %d if no answer changes, %d if "
            "%g %% do; give twice as many (--eval-images, --max-eval-images)",
            *(count, most, images_needed(most), images_needed(most, USUAL), 100 * USUAL),
        )
    rest, screen = split(search, min(1.0, SCREENED / len(search.files)), images.seed)
    return {"screen": screen, "rest": rest, "final": final}


def _ways(networks: Mapping[str, Opened]) -> list[Way]:
    """Return all ways: one value of every axis that is pinned, all values of the others."""
    own, weights = networks[OWN], dict[str, Candidate | None]()
    for name, each in networks.items():
        if name != OWN:
            weights[name] = None if each.as_given is None else _as_trained(name, each.as_given)
    # A calibration that a recipe names pins no method.
    return ways_of(own.whole.spec, replace(own.recipe.prune, calibration=None), weights)


def _as_trained(name: str, schedule: Schedule) -> Candidate:
    """Return the candidate of weights that come with a schedule."""
    prune = Prune(**{field: getattr(schedule, field) for field in SCORING})
    return Candidate(prune, name, given=True)


def _identity(opened: Opened, parts: Mapping[str, ImageFolder]) -> str:
    """Return what all measurements depend on, beside the model of each, and beside the CPU of some."""
    recipe = opened.recipe
    ranges = None if recipe.images.images is None else listing_sha256(opened.folder)
    return job_identity(
        (recipe.measure, recipe.lower.input_kind),
        images=[*map(listing_sha256, parts.values()), ranges],
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """A search, step by step: what measures, what to find, and the folder."""

    meter: Meter
    settings: TuneSettings
    place: Path
    stages: Stages

    def found(self) -> TuneResult:
        """Run all steps but the compilation."""
        meter, rates = self.meter, self.unpruned()
        here = [each.name for each in targets_here(self.settings.runtime, self.settings.target)]
        here.sort(key=rates.__getitem__, reverse=True)
        worth = [each for each in here if rates[each] >= WORTH * rates[here[0]]]
        ways = self.screened()
        count = max(OF_A_WAY, TIMED // len(ways))
        with self.stages.stage(f"how much to prune, {len(ways)} ways"):
            some = [each for way in ways for each in self.listed(way, worth[0], count)]
        points = self.points(some, worth)
        choice = chosen(points, self.settings)
        return TuneResult(
            model=meter.opened.whole.spec.name,
            settings=self.settings,
            candidates=len(meter.seen - {UNPRUNED}),
            images=len(meter.answers(UNPRUNED, "screen", "rest").labels),
            unpruned=rates,
            tried=points,
            front=tuple(each.candidate.label for each in front_of(points)),
            choice=choice,
            judged=None if choice is None else self.judged(choice),
            skipped=dict(sorted(meter.skipped.items())),
            calibration_skipped=dict(sorted(meter.calibration_skipped.items())),
        )

    def unpruned(self) -> dict[str, float]:
        """Return images per second of the unpruned model on every target, whose accuracy allows for the loss."""
        settings = self.settings
        with self.stages.stage("the unpruned model"):
            top1 = 100 * self.meter.answers(UNPRUNED, "screen").accuracy.top1
        if (
            settings.metric == "top1"
            and settings.max_drop is not None
            and settings.max_drop >= top1
        ):
            raise RecipeError(
                "max_drop", f"{settings.max_drop:g}", f"less than the accuracy, {top1:.3g} %"
            )
        every = dict.fromkeys((*targets_here(settings.runtime, settings.target), ONNXRUNTIME))
        with self.stages.stage(f"speed of the unpruned model on {len(every)} targets"):
            speeds = self.meter.speeds([UNPRUNED.on(each.name) for each in every])
        return {each.target: timed.throughput.images_per_s for each, timed in speeds.items()}

    def screened(self) -> list[Way]:
        """Return different ways that lose little on a few images, at about one share; calibrate if one needs it."""
        meter, every, found = self.meter, _ways(self.meter.networks), dict[Way, int]()
        for name in dict.fromkeys(way[0].weights for way in every if way[0].calibrated):
            file = f"{name}.calibration.safetensors" if name else "calibration.safetensors"
            meter.networks[name], skipped = calibrated(
                meter.networks[name], self.place / file, meter.book
            )
            meter.calibration_skipped.update(skipped)
        with self.stages.stage(
            f"ways to prune, by {len(meter.images['screen'].files)} images"
        ) as advance:
            for done, way in enumerate(every, 1):
                reached = tuple(each for each in way if meter.schedule(each) is not None)
                if reached:
                    found[reached] = meter.answers(
                        min(reached, key=_off), "screen"
                    ).accuracy.top1_hits
                advance(done, len(every))
        if not found:
            expected = "a smaller amount, or --images where scores or rates need a calibration"
            raise RecipeError("tune", "no candidate that can be pruned so", expected)
        return different(list(found), found.__getitem__)

    def listed(self, way: Way, fastest: str, count: int) -> list[Candidate]:
        """Return the shares of a way that are worth timing, by the screened loss or the measured time of a few."""
        settings, meter = self.settings, self.meter

        def loses(each: Candidate) -> bool:
            found = loss_of_choice(meter.paired(each, "screen"))
            return (found.loss_points or 0.0) > (settings.max_drop or 0.0) + ROUNDING

        def is_fast(each: Candidate) -> bool:
            base, own = (
                timed.throughput for timed in meter.speeds([BASE, each.on(fastest)]).values()
            )
            return settings.reached(own.median_ms, ratio_of(base, own))

        if len(way) == 1:
            return [*way]
        if settings.max_drop is None:
            return around(way, is_fast, count, milder=False)
        return around(way, loses, count, milder=True)

    def points(self, some: Sequence[Candidate], targets: Sequence[str]) -> tuple[Point, ...]:
        """Time candidates and the unpruned model in one run, and return them with their losses, fastest first.

        In fp32 the loss is that of the PyTorch model. In lower precision it is measured on the runtime: on
        the first target of all, on the others of those that no faster one beats whose loss qualifies.
        """
        placed = [each.on(target) for each in (UNPRUNED, *some) for target in targets]
        with self.stages.stage(f"speed of {len(some)} candidates on {len(targets)} targets"):
            speeds = self.meter.speeds([BASE, *placed])
        found, limit = list[Point](), self.settings.max_drop
        order = sorted(placed, key=lambda each: -speeds[each].throughput.images_per_s)
        with self.stages.stage(f"accuracy of {len(order)} models") as advance:
            for done, each in enumerate(order, 1):
                fp32 = TARGETS[each.target].precision == Precision.FP32
                beaten = limit is not None and any(
                    qualifies(point, self.settings) for point in found
                )
                if fp32 or each.target == targets[0] or not beaten:
                    answers = self.meter.paired(each.on("") if fp32 else each, "screen", "rest")
                    found.append(
                        point_of(
                            each, self.meter.macs(each), answers, speeds[BASE], speeds[each]
                        )
                    )
                advance(done, len(order))
        return tuple(found)

    def judged(self, choice: Point) -> Judged:
        """Judge the choice on the final half, on its runtime, against the unpruned fp32 model."""
        with self.stages.stage(
            f"{len(self.meter.images['final'].files)} images that no choice has read"
        ):
            return judged(self.meter.paired(choice.candidate, "final"), self.settings.max_drop)


def _off(candidate: Candidate) -> float:
    """Return how far from the share at which ways are screened a candidate is."""
    share = None if candidate.prune is None else candidate.prune.mac_reduction
    return abs((share or AT_SHARE) - AT_SHARE)


def _recipe_of(recipe: Recipe, choice: Candidate, meter: Meter) -> Recipe:
    """Return the recipe that compiles a choice; weights trained for pruning record their own schedule."""
    plain = recipe.but(
        prune=FREE, lower={"target": choice.target}, images={"max_eval_images": 1000}
    )
    schedule, prune = meter.schedule(choice), choice.prune
    if choice.given or prune is None or schedule is None:
        return plain
    file = (
        meter.networks[choice.weights].recipe.prune.calibration if choice.calibrated else None
    )
    how = {name: getattr(prune, name) for name in AXES}
    return plain.but(prune={**how, "rho": schedule.rho, "calibration": file})


def _save_unpruned(meter: Meter, choice: Candidate, folder: Path) -> None:
    """Write the one file of a choice that prunes nothing: there is no pair to compare."""
    dense, target = steps.dense(meter.networks[choice.weights].whole), TARGETS[choice.target]
    path = folder / target.file_name(dense.vit.spec.name, dense.method)
    recipe = meter.opened.recipe
    save_onnx(lower(dense, target, recipe.lower.input_kind, meter.ranges), path)
    finish_folder(folder, [path.name], recipe.prune.calibration)


def _trade_off(found: TuneResult, batch: int) -> TradeOff:
    """Return every measured point with its loss on the search half, two standard errors to each side."""
    points = (
        TradePoint(
            each.candidate.label,
            each.images_per_s,
            each.loss_points,
            (2 * each.loss_points - each.margin_points, each.margin_points),
            front=each.candidate.label in found.front,
        )
        for each in found.tried
    )
    return TradeOff(batch, found.settings.metric, found.images, found.unpruned, tuple(points))


def _save_chart(trade_off: TradeOff, model: str, path: Path) -> None:
    from exporter.evaluation.report.chart import trade_off_chart  # noqa: PLC0415  (matplotlib is slow to load)

    content = trade_off_chart(trade_off, model)
    with written_beside(path) as partial:
        partial.write_bytes(content)
