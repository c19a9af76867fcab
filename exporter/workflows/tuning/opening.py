"""What a search works on: its networks and the parts of its images, opened and checked before any measurement."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.data.images import ImageFolder, halves, sample
from exporter.data.source import class_mismatch, images_at
from exporter.errors import ImageError, ModelError, RecipeError
from exporter.files import PathLike
from exporter.runtimes.choice import targets_here
from exporter.workflows.opened import Opened, open_recipe, warn_where_slow
from exporter.workflows.progress import Stages
from exporter.workflows.recipe import Recipe, check_batches, needed
from exporter.workflows.steps import OwnModel
from exporter.workflows.tuning.choice import USUAL, TuneSettings, images_needed
from exporter.workflows.tuning.measured import Network
from exporter.workflows.tuning.ways import HOW, OWN

# Images of the search half on which ways are screened.
SCREENED = 256
# A checkpoint beside the model has its own: what pins an axis of the search, and what names the model.
OWN_VALUES: Mapping[str, Any] = {
    **dict.fromkeys((*HOW, "calibration", "rho", "mac_reduction", "num_classes")),
    "model": "",
    "model_kwargs": {},
    "preprocess": {},
    "recalibrate": False,
}

logger = logging.getLogger(__name__)


def recipes_of(recipe: Recipe, weights: Sequence[PathLike]) -> dict[str, Recipe]:
    """Return the recipes of the model and of other checkpoints, which say themselves which networks they are."""
    files = [Path(each) for each in weights]
    others = {path.stem: recipe.but(**OWN_VALUES, checkpoint=path) for path in files}
    if len(others) < len(files):
        names = ", ".join(path.stem for path in files)
        raise RecipeError("weights", names, "files of different names")
    return {OWN: recipe, **others}


def networks_and_parts(
    recipes: Mapping[str, Recipe], settings: TuneSettings, stages: Stages, model: OwnModel | None = None
) -> tuple[dict[str, Network], dict[str, ImageFolder]]:
    """Return the networks and the parts of the images, after all checks; say what so few images cannot show."""
    targets = targets_here(settings.runtime, settings.target)
    every = {
        name: open_recipe(each, stages, model if name == OWN else None) for name, each in recipes.items()
    }
    own = every[OWN].recipe
    needed(own.measure.rounds or None, "--rounds", "at least 5: speeds are measured")
    if every[OWN].given is not None or own.prune.rates:
        hint = "--weights FILE tries a fine-tuned checkpoint as it was trained"
        raise RecipeError("tune", "rates", "rho, mac_reduction, or no amount: it is searched for", hint)
    networks = _networks(every)
    spec = networks[OWN].vit.spec
    check_batches("--batch", (own.measure.batch,), spec)
    parts = _parts(every[OWN], settings)
    images, most = len(parts["final"].files), settings.max_drop
    if most is not None and images < images_needed(most, USUAL):
        logger.warning(
            "%d images are in the final half: to show a loss within %g points takes %d if no answer changes, %d if "
            "%g %% do; give twice as many (--eval-images, --max-eval-images)",
            *(images, most, images_needed(most), images_needed(most, USUAL), 100 * USUAL),
        )
    warn_where_slow(*targets)
    return networks, parts


def _networks(every: Mapping[str, Opened]) -> dict[str, Network]:
    """Load the networks, that of the model first."""
    found: dict[str, Network] = {}
    for name, opened in every.items():
        found[name] = Network(opened)
        spec, expected = opened.whole.spec, found[OWN].vit.spec.num_classes
        if not expected:
            hint = (
                "text_embeddings in a recipe makes a tower one; compile --rho R says how its embeddings agree"
            )
            got = "a model without logits, which has no top-1"
            raise RecipeError(spec.name, got, "a classifier", hint)
        if spec.num_classes != expected:
            got = f"{spec.num_classes} classes"
            raise ModelError(str(opened.recipe.model.checkpoint), got, f"{expected}, as the model has")
    return found


def _parts(opened: Opened, settings: TuneSettings) -> dict[str, ImageFolder]:
    """Split the evaluation images: "screen" and "rest" are the search half, "final" is the other one."""
    images, spec = opened.recipe.images, opened.whole.spec
    expected = "images to measure on, which calibration does not see"
    place, labelled = needed(images.eval_images, "--eval-images", expected), settings.metric == "top1"
    if images.images is not None:
        _ = opened.folder  # those to calibrate on are read later, after measurements
    classes, names = spec.num_classes, spec.class_names
    found = images_at(place, classes if labelled else None, images.class_map, names=names)
    if labelled and not found.labelled:
        got = class_mismatch(found, classes) or "images without classes"
        hint = "--metric agreement needs none"
        raise ImageError(str(place), got, f"one folder of images for each of {classes} classes", hint)
    search, final = halves(sample(found, images.max_eval_images, images.seed), images.seed)
    if not final.files:
        raise ImageError(str(place), f"{len(found.files)} images", "at least 2 for each class")
    screen, rest = search.files[:SCREENED], search.files[SCREENED:]
    return {
        "screen": ImageFolder(search.root, screen),
        "rest": ImageFolder(search.root, rest),
        "final": final,
    }
