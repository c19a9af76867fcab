"""What a verb checks before any work, and before a library of models is imported."""

import logging
from collections.abc import Sequence
from pathlib import Path

from exporter.core.base.errors import RecipeError
from exporter.core.base.files import writable_folder
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.policy import Policy
from exporter.jobs.network import A_FOLDER, TRAIN_IMAGES, Network
from exporter.jobs.recipe import Images, Recipe, needed
from exporter.models.identity import weights_file
from exporter.processes import processes

HELD_OUT_IMAGES = "labelled images that training does not see"

logger = logging.getLogger(__name__)


def check_compile(network: Network, policy: Policy, out: Path) -> None:
    """Check that everything that a compilation needs is given, then the folder."""
    policy.check_amount("compile")
    images = network.recipe.images
    if network.on_noise:
        _check_noise(images)
    else:
        needed(images.eval_images or images.images, "--images", A_FOLDER)
    network.check_needs(policy, network.recipe.lower.row)
    network.check_images()
    writable_folder(out)


def recipes_of(recipe: Recipe, methods: Sequence[Method]) -> list[Recipe]:
    """Return the recipe of each method."""
    if not methods or len(set(methods)) < len(methods):
        got = ",".join(methods) or "none"
        raise RecipeError("--method", got, "each method once")
    if recipe.prune.schedule is not None:
        raise RecipeError(
            "--schedule",
            f"a file beside {len(methods)} methods",
            "one method: it has its own",
        )
    return [recipe.but(prune={"method": method}) for method in methods]


def check_finetune(
    network: Network, policy: Policy, batch_size: int, out: Path
) -> None:
    """Check the amount, the images, and where the weights are written."""
    weights_file(out)
    count = processes().count
    if batch_size % count:
        expected = f"a multiple of the {count} processes"
        raise RecipeError("batch_size", str(batch_size), expected)
    policy.check_amount("finetune")
    check_training_images(network)


def check_training_images(network: Network) -> None:
    """Raise RecipeError unless there are images to train on, and others to measure on."""
    images = network.recipe.images
    needed(images.images, "--images", TRAIN_IMAGES)
    needed(images.eval_images, "--eval-images", HELD_OUT_IMAGES)
    network.check_images()


def _check_noise(images: Images) -> None:
    """Warn that noise is measured on; RecipeError where a setting asks for what only images can tell."""
    if images.class_map is not None:
        raise RecipeError(
            "--class-map", "no images", "--images beside it, whose accuracy it asks for"
        )
    logger.warning(
        "no images: agreement with PyTorch and speed are measured on noise, not on photos; accuracy is not "
        "measured, and no picture is drawn (--images DIR)"
    )
