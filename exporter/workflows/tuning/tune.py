"""Find a model: screen the ways, time what is left, judge the choice; it leaves a recipe and an export folder."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from exporter.data.images import listing_sha256
from exporter.errors import RecipeError
from exporter.evaluation.benchmark import TradeOff, TradePoint, installed_versions, ratio_of
from exporter.evaluation.loss import loss_of
from exporter.files import PathLike, writable_folder, written_beside
from exporter.formats.canonical_json import save_json, to_json
from exporter.lowering.pipeline import lower, save_onnx
from exporter.processes import processes
from exporter.runtimes.choice import targets_here
from exporter.schedule.prune import Prune
from exporter.targets import ONNXRUNTIME, TARGETS
from exporter.training.checkpoint import versions
from exporter.vocabulary import Precision
from exporter.workflows import steps
from exporter.workflows.compile import compile_model
from exporter.workflows.folders.export_folder import finish_folder
from exporter.workflows.opened import DryRun, Opened, dry_run
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipe import Recipe, save_recipe
from exporter.workflows.steps import OwnModel
from exporter.workflows.tuning.choice import (
    Judged,
    Point,
    Timed,
    TuneSettings,
    around,
    chosen,
    different,
    front,
    judged,
    point_of,
    qualifies,
)
from exporter.workflows.tuning.measured import Book, Meter, Network
from exporter.workflows.tuning.opening import networks_and_parts, recipes_of
from exporter.workflows.tuning.ways import HOW, OWN, UNPRUNED, Candidate, Way, candidates, ways_of

# What a search writes to its folder.
RECIPE, FRONT, CHART, COMPILED = "tune.toml", "front.json", "front.png", "compiled"
MEASUREMENTS = "measurements.jsonl"
# At about this share of saved multiply-adds ways are screened.
AT_SHARE = 0.4
# Candidates to be timed: about so many in all, and no fewer of a way.
TIMED, OF_A_WAY = 12, 3
# A target on which the unpruned model has less than this share of the best speed is timed once.
WORTH = 0.75
# The unpruned model that all others are compared with.
BASE = UNPRUNED.on(ONNXRUNTIME.name)


@dataclass(frozen=True)
class Tuned:
    """What a search found. `choice` and what follows from it are None if nothing reaches the goal.

    `judged` is measured on the final half, which no choice has read; the losses of `tried` and `front` on the
    search half. `unpruned` has images per second by target. `parity` is None where there is no pair.
    `calibration_skipped` is empty where a calibration was given.
    """

    model: str
    settings: TuneSettings
    candidates: int
    images: int
    unpruned: dict[str, float]
    tried: tuple[Point, ...]
    front: tuple[Point, ...]
    choice: Point | None = None
    judged: Judged | None = None
    recipe: str | None = None
    parity: bool | None = None
    skipped: dict[str, str] = field(default_factory=dict)
    calibration_skipped: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        if self.choice is None or self.judged is None:
            return f"<Tuned {self.model}: nothing found>"
        return f"<Tuned {self.model}: {self.choice.gain:.2f} ×, {self.judged.status}>"


def tune(
    recipe: Recipe,
    settings: TuneSettings,
    out: PathLike,
    *,
    model: OwnModel | None = None,
    weights: Sequence[PathLike] = (),
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
        stages: Shows progress.
        command: Written into the recipe.

    Raises:
        UserError: The recipe cannot be carried out.
    """
    stages, place, recipes = stages or Silent(), writable_folder(Path(out)), recipes_of(recipe, weights)
    networks, parts = networks_and_parts(recipes, settings, stages, model)
    measuring = networks[OWN].opened.recipe.measure
    told = [*map(listing_sha256, parts.values()), *_told(networks[OWN].opened)]
    book = Book(place / MEASUREMENTS, to_json(told))
    with TemporaryDirectory(prefix="star-export-") as scratch:
        meter = Meter(networks, book, Path(scratch), parts, settings.metric, _axes(recipe))
        found = _Search(meter, settings, place, stages).found()
        if not processes().main:
            return found
        save_json({"front": found.front, "tried": found.tried, "unpruned": found.unpruned}, place / FRONT)
        trade_off = _trade_off(found, measuring.batch)
        _save_chart(trade_off, found.model, place / CHART)
        if found.choice is None:
            (place / RECIPE).unlink(missing_ok=True)  # an earlier search's
            return found
        choice = found.choice.candidate
        best = _recipe_of(recipes, choice, meter)
        save_recipe(best, place / RECIPE, f"Found by: {shlex.join(command)}" if command else "")
        if choice.prunes:
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
    networks, parts = networks_and_parts(recipes_of(recipe, weights), settings, Silent())
    ways, images = len(_ways(networks, _axes(recipe))), len(parts["screen"].files)
    unknown = f"the search, which screens {ways} ways on {images} images each"
    return dry_run(networks[OWN].opened, recipe, settings, unknown=unknown)


@dataclass(frozen=True, eq=False)
class _Search:
    """A search, step by step: what measures, what to find, and the folder."""

    meter: Meter
    settings: TuneSettings
    place: Path
    stages: Stages

    def found(self) -> Tuned:
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
        made = [each.calibration.skipped for each in meter.networks.values() if each.calibration is not None]
        return Tuned(
            model=meter.vit.spec.name,
            settings=self.settings,
            candidates=len(meter.seen - {UNPRUNED}),
            images=len(meter.right(UNPRUNED, "screen", "rest")),
            unpruned=rates,
            tried=points,
            front=front(points),
            choice=choice,
            judged=None if choice is None else self.judged(choice),
            skipped=dict(sorted(meter.skipped.items())),
            calibration_skipped=dict(sorted(item for each in made for item in each.items())),
        )

    def unpruned(self) -> dict[str, float]:
        """Return images per second of the unpruned model on every target, whose accuracy allows for the loss."""
        settings = self.settings
        with self.stages.stage("the unpruned model"):
            top1 = 100 * float(self.meter.right(UNPRUNED, "screen").mean())
        if settings.metric == "top1" and settings.max_drop is not None and settings.max_drop >= top1:
            raise RecipeError("max_drop", f"{settings.max_drop:g}", f"less than the accuracy, {top1:.3g} %")
        every = dict.fromkeys((*targets_here(settings.runtime, settings.target), ONNXRUNTIME))
        with self.stages.stage(f"speed of the unpruned model on {len(every)} targets"):
            speeds = self.meter.speeds([UNPRUNED.on(each.name) for each in every])
        return {each.target: timed.throughput.images_per_s for each, timed in speeds.items()}

    def screened(self) -> list[Way]:
        """Return different ways that lose little on a few images, at about one share.

        Those that need no calibration come first, and a calibration is made only for one that needs it.
        """
        meter, every = self.meter, _ways(self.meter.networks, self.meter.scoring)
        needy = [way for way in every if way[0].calibrated]
        ways = self._screened([way for way in every if way not in needy])
        for name in dict.fromkeys(way[0].weights for way in needy):
            path = self.place / (
                f"{name}.calibration.safetensors" if name != OWN else "calibration.safetensors"
            )
            meter.networks[name].calibrate(path, meter.book, self.stages)
        ways |= self._screened(needy)
        if not ways:
            expected = "a smaller amount, or --images where scores or rates need a calibration"
            raise RecipeError("tune", "no candidate that can be pruned so", expected)
        return different(list(ways), ways.__getitem__)

    def _screened(self, ways: Sequence[Way]) -> dict[Way, int]:
        """Return the ways, of the shares within reach, with the images that each has right."""
        found = {}
        with self.stages.stage(
            f"ways to prune, by {len(self.meter.images['screen'].files)} images"
        ) as advance:
            for done, way in enumerate(ways, 1):
                reached = tuple(each for each in way if self.meter.schedule(each) is not None)
                if reached:
                    one = min(reached, key=lambda each: abs((each.mac_reduction or AT_SHARE) - AT_SHARE))
                    found[reached] = int(self.meter.right(one, "screen").sum())
                advance(done, len(ways))
        return found

    def listed(self, way: Way, fastest: str, count: int) -> list[Candidate]:
        """Return the shares of a way that are worth timing, by the screened loss or the measured time of a few."""
        settings, meter = self.settings, self.meter

        def loses(each: Candidate) -> bool:
            dense = meter.right(UNPRUNED, "screen")
            lost, gained = loss_of(dense, meter.right(each, "screen"))
            return 100 * (lost - gained) > (settings.max_drop or 0.0) * len(dense)

        def is_fast(each: Candidate) -> bool:
            base, own = (timed.throughput for timed in meter.speeds([BASE, each.on(fastest)]).values())
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
                beaten = limit is not None and any(qualifies(point, self.settings) for point in found)
                if fp32 or each.target == targets[0] or not beaten:
                    found.append(self._point(each, each.on("") if fp32 else each, speeds))
                advance(done, len(order))
        return tuple(found)

    def _point(self, each: Candidate, run: Candidate, speeds: Mapping[Candidate, Timed]) -> Point:
        dense, own = (self.meter.right(one, "screen", "rest") for one in (UNPRUNED, run))
        same = self.meter.same(run, "screen", "rest")
        return point_of(each, self.meter.macs(each), (dense, own), same, (speeds[BASE], speeds[each]))

    def judged(self, choice: Point) -> Judged:
        """Judge the choice on the final half, on its runtime, against the unpruned fp32 model."""
        with self.stages.stage(f"{len(self.meter.images['final'].files)} images that no choice has read"):
            own, same = (each(choice.candidate, "final") for each in (self.meter.right, self.meter.same))
            return judged(self.meter.right(UNPRUNED, "final"), own, same, self.settings.max_drop)


def _told(opened: Opened) -> list[Any]:
    """Return what all measurements depend on, beside the images that they are made on."""
    recipe = opened.recipe
    ranges = None if recipe.images.images is None else listing_sha256(opened.folder)
    return [recipe.measure, recipe.lower.input_kind, ranges, versions() | installed_versions("openvino")]


def _axes(recipe: Recipe) -> Prune:
    """Return what a recipe pins of schedules; a calibration that it names pins no method."""
    return replace(recipe.prune, calibration=None)


def _ways(networks: Mapping[str, Network], axes: Prune) -> list[Way]:
    """Return all ways: one value of every axis that is pinned, all values of the others."""
    weights = {name: network.candidate(name) for name, network in networks.items() if name != OWN}
    return ways_of(candidates(networks[OWN].vit.spec, axes, weights))


def _recipe_of(recipes: Mapping[str, Recipe], choice: Candidate, meter: Meter) -> Recipe:
    """Return the recipe that compiles a choice; weights trained for pruning record their own schedule."""
    free: dict[str, Any] = dict.fromkeys((*HOW, "rho", "mac_reduction", "calibration"))
    plain = recipes[choice.weights].but(**free, target=choice.target, max_eval_images=1000)
    schedule = meter.schedule(choice)
    if choice.given or not choice.prunes or schedule is None:
        return plain
    file = meter.networks[choice.weights].file if choice.calibrated else None
    return plain.but(**choice.how, rho=schedule.rho, calibration=file)


def _save_unpruned(meter: Meter, choice: Candidate, folder: Path) -> None:
    """Write the one file of a choice that prunes nothing: there is no pair to compare."""
    dense, target = steps.dense(meter.networks[choice.weights].vit), TARGETS[choice.target]
    path = folder / target.file_name(dense.vit.spec.name, dense.method)
    recipe = meter.opened.recipe
    save_onnx(lower(dense, target, recipe.lower.input_kind, meter.ranges), path)
    finish_folder(folder, [path.name], recipe.prune.calibration)


def _trade_off(found: Tuned, batch: int) -> TradeOff:
    """Return every measured point with its loss on the search half, two standard errors to each side."""
    points = (
        TradePoint(
            each.candidate.label,
            each.images_per_s,
            each.loss_points,
            (2 * each.loss_points - each.margin_points, each.margin_points),
            front=each in found.front,
        )
        for each in found.tried
    )
    return TradeOff(batch, found.settings.metric, found.images, found.unpruned, tuple(points))


def _save_chart(trade_off: TradeOff, model: str, path: Path) -> None:
    from exporter.evaluation.report.chart import trade_off_chart  # noqa: PLC0415  (matplotlib is slow to load)

    content = trade_off_chart(trade_off, model)
    with written_beside(path) as partial:
        partial.write_bytes(content)
