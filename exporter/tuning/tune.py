"""Find a model: check what is searched, search it, and leave a recipe and an export folder of the choice."""

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import ImageError, ModelError, RecipeError
from exporter.core.base.files import PathLike, writable_folder, written_beside
from exporter.core.base.large_onnx import files_of
from exporter.core.base.machine import job_identity
from exporter.core.base.progress import SILENT, Stages
from exporter.core.base.records import Schedule
from exporter.core.schedule.prune import SCORING, Prune
from exporter.data.images import (
    ImageFolder,
    listing_sha256,
    sample,
    shared_count,
    split,
)
from exporter.data.source import class_mismatch
from exporter.engines.choice import targets_here
from exporter.jobs.compile import compile_model
from exporter.jobs.network import Network
from exporter.jobs.opened import DryRun, dry_run, open_recipe, warn_where_slow
from exporter.jobs.recipe import Recipe, needed, save_recipe
from exporter.jobs.variant import Variant
from exporter.measure.benchmark import TradeOff
from exporter.models.own_vit import OwnModel
from exporter.processes import processes
from exporter.serve.export_folder import finish_folder
from exporter.tuning.book import Book
from exporter.tuning.choice import (
    USUAL,
    Point,
    TuneResult,
    TuneSettings,
    chosen,
    images_needed,
)
from exporter.tuning.recipes import (
    EVAL_IMAGES,
    FREE,
    check_named,
    check_search,
    recipes_with,
)
from exporter.tuning.search import Search
from exporter.tuning.ways import AXES, OWN, Candidate, Way, ways_of

# What a search writes to its folder.
RECIPE, FRONT, CHART, COMPILED = "tune.toml", "front.json", "front.png", "compiled"
MEASUREMENTS = "measurements.jsonl"
# Images of the search half on which ways are screened.
SCREENED = 256
logger = logging.getLogger(__name__)


def tune(
    recipe: Recipe,
    settings: TuneSettings,
    out: PathLike,
    *,
    model: OwnModel | None = None,
    weights: Sequence[PathLike] = (),
    stages: Stages = SILENT,
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
    place = writable_folder(Path(out))
    recipes = recipes_with(recipe, weights)
    opened = _opened(recipes, settings, stages, model)
    network = opened[OWN].network
    parts = _parts(network, settings)
    book = Book(place / MEASUREMENTS, _identity(network, parts))
    with TemporaryDirectory(prefix="star-export-") as scratch:
        search = Search(
            opened, _ways(opened), settings, book, parts, place, Path(scratch)
        )

        def save_best(points: Sequence[Point]) -> None:
            """Write the best choice so far: an interrupted search has a result too."""
            best = chosen(points, settings)
            if best is not None and processes().main:
                head = f"The best so far of: {shlex.join(command)}"
                _save_choice(best.candidate, head, recipes, search)

        result = search.run(save_best)
        if not processes().main:
            return result
        return _deliver(result, recipes, search, model, command)


def dry_tune(
    recipe: Recipe,
    settings: TuneSettings,
    out: PathLike,
    *,
    weights: Sequence[PathLike] = (),
) -> DryRun:
    """Check what `tune` checks before its first measurement, weights included; nothing is written."""
    writable_folder(Path(out))
    opened = _opened(recipes_with(recipe, weights), settings)
    ways, parts = _ways(opened), _parts(opened[OWN].network, settings)
    images = len(parts["screen"].files)
    unknown = f"the search, which screens {len(ways)} ways on {images} images each"
    return dry_run(opened[OWN], recipe, settings, unknown=unknown)


def _opened(
    recipes: Mapping[str, Recipe],
    settings: TuneSettings,
    stages: Stages = SILENT,
    model: OwnModel | None = None,
) -> dict[str, Variant]:
    """Open the recipes of all networks, and load these after all checks of settings, the model first."""
    opened = {}
    for name, recipe in recipes.items():
        variant = open_recipe(recipe, stages, model if name == OWN else None)
        # A search compares classes, whatever outputs the choice is compiled with.
        opened[name] = replace(variant, network=variant.network.with_outputs())
        if name != OWN:
            check_named(variant.network)
    network, policy = opened[OWN].network, opened[OWN].policy
    assert policy is not None
    check_search(network, policy, settings)
    classes = network.full.spec.num_classes
    for variant in opened.values():
        _check_classes(variant.network, classes)
    warn_where_slow(*targets_here(settings.runtime, settings.target))
    return opened


def _check_classes(network: Network, classes: int) -> None:
    """Check that a network has classes, as many as the model."""
    spec = network.full.spec
    if not classes:
        got = "a model without logits, which has no top-1"
        hint = "text_embeddings in a recipe makes a tower one; compile --rho R says how what it gives agrees"
        raise RecipeError(spec.name, got, "a classifier", hint)
    if spec.num_classes != classes:
        file, got = str(network.recipe.model.checkpoint), f"{spec.num_classes} classes"
        raise ModelError(file, got, f"{classes}, as the model has")


def _parts(network: Network, settings: TuneSettings) -> dict[str, ImageFolder]:
    """Split the evaluation images: "screen" and "rest" are the search half, "final" is the other one.

    Say what so few images cannot show.
    """
    images, spec = network.recipe.images, network.full.spec
    place = needed(images.eval_images, "--eval-images", EVAL_IMAGES)
    labelled = settings.metric == "top1"
    folder = network.listed(place, spec.num_classes if labelled else None)
    if images.images is not None:
        _warn_of_seen(folder, network.folder)
    if labelled and not folder.labelled:
        got = class_mismatch(folder, spec.num_classes) or "images without classes"
        expected = f"one folder of images for each of {spec.num_classes} classes"
        raise ImageError(place, got, expected, "--metric agreement needs none")
    sampled = sample(folder, images.max_eval_images, images.seed)
    search, final = split(sampled, 0.5, images.seed)
    if not final.files:
        got = f"{len(folder.files)} images"
        raise ImageError(place, got, "at least 2 for each class")
    if settings.max_drop is not None:
        _warn_of_few_images(len(final.files), settings.max_drop)
    rest, screen = split(search, min(1.0, SCREENED / len(search.files)), images.seed)
    return {"screen": screen, "rest": rest, "final": final}


def _warn_of_seen(measured: ImageFolder, calibrated: ImageFolder) -> None:
    """Log one line where images to measure on are among those to calibrate on."""
    seen = shared_count(measured, calibrated)
    if seen:
        text = "%s: %d of %d images to measure on are calibrated on too: what is measured on them may be too good"
        logger.warning(text, measured.root, seen, len(measured.files))


def _warn_of_few_images(count: int, max_drop: float) -> None:
    """Say how many images of the final half would show the loss, where they are more."""
    least, usual = images_needed(max_drop), images_needed(max_drop, USUAL)
    if count < usual:
        logger.warning(
            "%d images are in the final half: to show a loss within %g points takes %d if no answer changes, %d if "
            "%g %% do; give twice as many (--eval-images, --max-eval-images)",
            count,
            max_drop,
            least,
            usual,
            100 * USUAL,
        )


def _ways(opened: Mapping[str, Variant]) -> list[Way]:
    """Return all ways: one value of every axis that is pinned, all values of the others."""
    network = opened[OWN].network
    weights = {
        name: _as_trained(name, variant.given)
        for name, variant in opened.items()
        if name != OWN
    }
    # A calibration that a recipe names pins no method.
    pinned = replace(network.recipe.prune, calibration=None)
    return ways_of(pinned, weights)


def _as_trained(name: str, schedule: Schedule | None) -> Candidate | None:
    """Return the candidate of weights that come with a schedule."""
    if schedule is None:
        return None
    prune = Prune(**{field: getattr(schedule, field) for field in SCORING})
    return Candidate(prune, name, given=True)


def _identity(network: Network, parts: Mapping[str, ImageFolder]) -> str:
    """Return what all measurements depend on, beside the model of each, and beside the CPU of some."""
    images = network.recipe.images.images
    ranges = None if images is None else listing_sha256(network.folder)
    return job_identity(
        (network.measuring, network.input_kind),
        images=[*map(listing_sha256, parts.values()), ranges],
    )


def _deliver(
    result: TuneResult,
    recipes: Mapping[str, Recipe],
    search: Search,
    model: OwnModel | None,
    command: Sequence[str],
) -> TuneResult:
    """Write the front; write the recipe of the choice, and compile it."""
    trade_off = _trade_off(result, search.network.recipe.measure.batch)
    _save_front(result, trade_off, search.place)
    file = search.place / RECIPE
    if result.choice is None:
        file.unlink(missing_ok=True)  # an earlier search's
        return result
    choice = result.choice.candidate
    head = f"Found by: {shlex.join(command)}" if command else ""
    recipe = _save_choice(choice, head, recipes, search)
    result = replace(result, recipe=str(file))
    folder = search.place / COMPILED
    if choice.prune is None:
        _save_unpruned(search, choice, folder)
        return result
    own_model = model if choice.weights == OWN else None
    report = compile_model(
        recipe, folder, own_model, search.stages, trade_off=trade_off, command=command
    )
    return replace(result, parity=report.passed)


def _save_choice(
    choice: Candidate, head: str, recipes: Mapping[str, Recipe], search: Search
) -> Recipe:
    """Write the recipe that compiles a choice."""
    recipe = _recipe_of(recipes[choice.weights], choice, search)
    save_recipe(recipe, search.place / RECIPE, head)
    return recipe


def _recipe_of(recipe: Recipe, choice: Candidate, search: Search) -> Recipe:
    """Return the recipe that compiles a choice; weights trained for pruning record their own schedule."""
    plain = recipe.but(
        prune=FREE, lower={"target": choice.target}, images={"max_eval_images": 1000}
    )
    prune = choice.prune
    if choice.given or prune is None:
        return plain
    file = search.calibration_file(choice.weights) if choice.calibrated else None
    chosen = {name: getattr(prune, name) for name in AXES}
    policy = choice.policy
    if policy is not None and policy.curve is not None:
        # The layers that merge follow from the share: beside a rho they would be others than those measured.
        chosen |= {"rho": prune.rho, "mac_reduction": prune.mac_reduction}
    else:
        chosen["rho"] = search.variant(choice).schedule.rho
    return plain.but(prune={**chosen, "calibration": file})


def _save_unpruned(search: Search, choice: Candidate, folder: Path) -> None:
    """Write the one file of a choice that prunes nothing: there is no pair to compare."""
    file = replace(search.variant(choice), folder=folder).file
    names = [path.name for path in files_of(file.path)]
    finish_folder(folder, names, search.network.recipe.prune.calibration)


def _trade_off(result: TuneResult, batch: int) -> TradeOff:
    """Return every measured point with its loss on the search half."""
    points = []
    for tried in result.tried:
        point = tried.trade_point
        points.append(replace(point, front=point.label in result.front))
    metric, images = result.settings.metric, result.images
    return TradeOff(batch, metric, images, result.unpruned, tuple(points))


def _save_front(result: TuneResult, trade_off: TradeOff, place: Path) -> None:
    """Write all that was measured, and draw it."""
    from exporter.report.chart import trade_off_chart  # noqa: PLC0415  (matplotlib is slow to load)

    front = {name: getattr(result, name) for name in ("front", "tried", "unpruned")}
    save_json(front, place / FRONT)
    with written_beside(place / CHART) as partial:
        partial.write_bytes(trade_off_chart(trade_off, result.model))
