"""The owner's model and its images: opened once, listed once, each on first use.

Nothing in here imports a library of models before it is needed: the import takes seconds, and a mistake in the
settings needs none.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.calibration.record import (
    Calibration,
    Pruning,
    check_calibration,
    load_calibration,
)
from exporter.core.base.errors import ImageError, RecipeError
from exporter.core.base.progress import SILENT, Stages
from exporter.core.base.records import ModelSpec
from exporter.core.base.targets import Target
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import InputKind
from exporter.core.schedule.policy import Need, Policy, check_needs
from exporter.core.schedule.prune import AMOUNTS, SCORING, Prune
from exporter.data.class_map import MAP_HINT
from exporter.data.images import ImageFolder, check_readable, sample
from exporter.data.spread import set_apart
from exporter.jobs.recipe import Measuring, Recipe, needed
from exporter.measure.settings import BATCH
from exporter.models.checkpoint import check_weights, recorded_name
from exporter.models.identity import read_identity
from exporter.models.request import ModelRequest
from exporter.processes import processes
from exporter.training.pruned_checkpoint import read_pruning

if TYPE_CHECKING:
    from torch import Tensor

    from exporter.core.vit.protocol import PrunableViT
    from exporter.models.own_vit import OwnModel
    from exporter.training.divergence import Judges

A_FOLDER = "a folder of images"
TRAIN_IMAGES = "labelled images to train on"

# Activation ranges settle within a few dozen images.
RANGE_IMAGES = 64
# With fewer images, an interval says little.
LEAST_IMAGES = 16
# A model is fitted to so many images, judged on so many others or on this share, as far as so many bytes allow.
FITTED_TO, JUDGING, LEAST_JUDGING, FIT_BYTES = 1536, 2560, 0.25, 4 << 30

# Our models tell noise, single colours and images of another kind apart by 0.3 at most, their own by 0.6 to 0.8.
LEAST_TOLD_APART = 0.35

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Network:
    """A model of the owner's and its images, which all its variants share.

    `recipe` names both, with the name of the checkpoint's network, unless a `model` is the caller's own. `restored`
    is what the checkpoint was trained with, if anything.
    """

    recipe: Recipe
    restored: Pruning | None = None
    model: "OwnModel | None" = None
    stages: Stages = SILENT
    _listings: dict[Path, ImageFolder] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        model: "OwnModel | None" = None,
        stages: Stages = SILENT,
        *,
        restore: bool = True,
    ) -> "Network":
        """Return the network of a recipe, whose checkpoint says its name, and how it was pruned.

        Args:
            recipe: The settings.
            model: A ViT to use instead of the recipe's.
            stages: Shows the stages of what is read later.
            restore: Whether the checkpoint is pruned as it was trained, if it says how.
        """
        restored = _restored(recipe, restore=restore)
        name = recipe.model.name or recorded_name(recipe.model.checkpoint)
        named = replace(recipe, model=replace(recipe.model, name=name))
        return cls(named, restored, model, stages)

    def policy(self, *, dense: bool = False, refits: bool = False) -> Policy:
        """Return how it prunes; `dense` and `refits` as of `Recipe.policy`."""
        trained = None if self.restored is None else self.restored.schedule
        return self.recipe.policy(trained, dense=dense, refits=refits)

    @property
    def has_calibration(self) -> bool:
        """Whether a calibration is given."""
        is_given = self.recipe.prune.calibration is not None
        return is_given or self._trained_with is not None

    @property
    def on_noise(self) -> bool:
        """Whether models are compared on noise: a checkpoint brings all else, and no images are given."""
        images = self.recipe.images
        without = images.images is None and images.eval_images is None
        return self.restored is not None and without

    def check_model(self) -> None:
        """Raise UserError unless a known model is named, and its checkpoint and its calibration are there."""
        model, calibration = self.recipe.model, self.recipe.prune.calibration
        check_weights(model.checkpoint)
        if read_identity(model.checkpoint) is None:
            from exporter.models.listed import check_adapter, check_name  # noqa: PLC0415  (`--help` needs no list)

            check_name(model.name)
            check_adapter(model.name)
        if calibration is not None:
            load_calibration(calibration)

    def check_images(self) -> None:
        """Raise ImageError unless the folders that are given can be read."""
        for place in (self.recipe.images.images, self.recipe.images.eval_images):
            if place is not None and not place.is_file():
                check_readable(place)

    def check_needs(self, policy: Policy | None, target: Target | None) -> None:
        """Raise RecipeError for the first need that nothing meets."""
        images = self.recipe.images.images is not None
        needs = needs_of(policy, target)
        check_needs(needs, images=images, calibration=self.has_calibration)

    @cached_property
    def full(self) -> "PrunableViT":
        """The model with all its layers and its own outputs."""
        from exporter.core.vit.protocol import PrunableViT  # noqa: PLC0415

        is_ready = isinstance(self.model, PrunableViT)
        with nullcontext() if is_ready else self.stages.stage("model"):
            return loaded(self.recipe.model, self.model)

    @cached_property
    def vit(self) -> "PrunableViT":
        """The model with the outputs that the recipe names; ModelError where it lacks one."""
        from exporter.core.vit.spec import with_outputs  # noqa: PLC0415

        return with_outputs(self.full, self.recipe.model.outputs)

    @cached_property
    def described(self) -> "PrunableViT":
        """The shape of `full`, without weights."""
        from exporter.depth.checkpoint import describe_vit  # noqa: PLC0415

        return describe_vit(self.recipe.model)

    @property
    def input_kind(self) -> InputKind:
        """How its lowered models take images."""
        return self.recipe.lower.input_kind

    @property
    def measuring(self) -> Measuring:
        """How its models are measured."""
        return self.recipe.measure

    def with_outputs(self, *names: str) -> "Network":
        """Return the same with other outputs than the recipe's; without names, with the model's own."""
        request = replace(self.recipe.model, outputs=names)
        return replace(self, recipe=replace(self.recipe, model=request))

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration that is given, with all layers of the model."""
        if not self.has_calibration:
            return None
        return self.calibration_for(self.full.spec, self.full.weights_sha256)

    def calibration_for(
        self, spec: ModelSpec, weights_sha256: str = ""
    ) -> Calibration | None:
        """Read the given calibration; weights are not compared if the hash is ""."""
        calibration, file = self._trained_with, self.recipe.prune.calibration
        if calibration is not None:
            # It was measured with the weights before they were trained further.
            weights_sha256 = ""
        elif file is not None:
            calibration = load_calibration(file)
        if calibration is not None:
            check_calibration(calibration, spec, weights_sha256)
        return calibration

    @property
    def _trained_with(self) -> Calibration | None:
        return None if self.restored is None else self.restored.calibration

    @cached_property
    def folder(self) -> ImageFolder:
        """The images to calibrate on, without labels."""
        from exporter.data.source import images_at  # noqa: PLC0415

        place = needed(self.recipe.images.images, "--images", A_FOLDER)
        folder = self._listings.get(place) or images_at(place)
        return replace(
            folder, files=tuple(replace(file, label=None) for file in folder.files)
        )

    @cached_property
    def labelled(self) -> ImageFolder:
        """The images to train on, with their labels. Errors as of `folder`."""
        place = needed(self.recipe.images.images, "--images", TRAIN_IMAGES)
        return self.listed(place, self.full.spec.num_classes)

    @cached_property
    def evaluated(self) -> ImageFolder:
        """The images to compare and measure on, drawn by the seed. Errors as of `folder`."""
        from exporter.data.source import class_mismatch  # noqa: PLC0415

        images, classes = self.recipe.images, self.vit.spec.num_classes
        place = needed(images.eval_images or images.images, "--images", A_FOLDER)
        folder = self.listed(place, classes)
        mismatch = class_mismatch(folder, classes)
        if mismatch:
            text = "%s: %s, and the model has %d classes: accuracy is not measured (%s)"
            logger.warning(text, place, mismatch, classes, MAP_HINT)
        return sample(folder, images.max_eval_images, images.seed)

    def listed(self, place: Path, classes: int | None) -> ImageFolder:
        """List images with the classes of the model; without labels if `classes` is None. Errors as of `folder`."""
        from exporter.data.source import images_at  # noqa: PLC0415

        order, names = self.recipe.images.class_map, self.full.spec.class_names
        listing = images_at(place, classes, order, names=names)
        self._listings[place] = listing
        return listing

    @cached_property
    def ranges(self) -> Array | None:
        """Images for the ranges of activations, as lowered models take them; None where none are given."""
        recipe = self.recipe
        if recipe.images.images is None:
            return None
        most = recipe.calibrate.max_images
        count = min(most, RANGE_IMAGES) if isinstance(most, int) else RANGE_IMAGES
        return self.pixels(self.folder, count, self.input_kind, recipe.calibrate.seed)

    def pixels(
        self,
        folder: ImageFolder,
        count: int,
        input_kind: InputKind,
        seed: int | None = None,
    ) -> Array:
        """Return at most so many images of a folder as a model takes them, by default drawn by the images' seed."""
        from exporter.data.batches import draw_images  # noqa: PLC0415

        seed = self.recipe.images.seed if seed is None else seed
        preprocessing = self.vit.spec.preprocessing
        return draw_images(folder, count, seed, preprocessing, input_kind)

    @cached_property
    def to_fit(self) -> "tuple[Sequence[Tensor], Judges]":
        """Images to fit a pruned model to, in batches [b, 3, height, width], and others that judge what is gained.

        Those to evaluate on judge, where there are any; their labels are not read. Where there are none, images
        that the model does not know would judge themselves: they are refused.
        """
        from exporter.training.refit import bytes_of_image, bytes_to_refit  # noqa: PLC0415

        spec, images = self.vit.spec, self.recipe.images
        most = min(FITTED_TO + JUDGING, FIT_BYTES // bytes_of_image(spec))
        count = min(FITTED_TO, FIT_BYTES // bytes_to_refit(spec), most)
        if images.eval_images not in (None, images.images):
            judging = sample(self.evaluated, most - count, images.seed)
            return self._batches(self.folder, count), self._judges(judging)
        drawn = sample(self.folder, most, images.seed)
        share = max(LEAST_JUDGING, 1.0 - count / len(drawn.files))
        read, apart = set_apart(drawn.files, share)
        judges = self._judges(replace(drawn, files=tuple(apart)))
        if judges.told_apart < LEAST_TOLD_APART:
            got = f"images that {spec.name} tells apart as little as noise, by {judges.told_apart:.2f}"
            expected = (
                f"images like those of its training, told apart by {LEAST_TOLD_APART:g}"
            )
            hint = "--eval-images of such"
            raise ImageError(f"refit on {self.folder.root}", got, expected, hint)
        return self._batches(replace(drawn, files=tuple(read)), count), judges

    def _judges(self, folder: ImageFolder) -> "Judges":
        from exporter.training.divergence import Judges  # noqa: PLC0415

        batches = self._batches(folder, len(folder.files))
        with self.stages.stage("answers of the dense model") as advance:
            return Judges.of(self.vit, batches, advance)

    def _batches(self, folder: ImageFolder, count: int) -> "Sequence[Tensor]":
        import torch  # noqa: PLC0415

        if len(folder.files) < LEAST_IMAGES:
            got = f"{len(folder.files)} images"
            expected = f"at least {LEAST_IMAGES}"
            raise ImageError(f"refit on {folder.root}", got, expected)
        pixels = self.pixels(folder, count, InputKind.FLOAT32)
        return torch.from_numpy(pixels).split(BATCH)


def loaded(request: ModelRequest, model: "OwnModel | None" = None) -> "PrunableViT":
    """Load the requested ViT, or put the given one behind its adapter."""
    from exporter.depth.checkpoint import load_vit  # noqa: PLC0415
    from exporter.models.own_vit import own_vit  # noqa: PLC0415

    if model is not None:
        return own_vit(model, request)
    return load_vit(request, processes().device or request.device)


def needs_of(policy: Policy | None, target: Target | None) -> frozenset[Need]:
    """Return what pruning, and lowering for a target, need beside the model."""
    needs = frozenset[Need]() if policy is None else policy.needs
    return needs | {Need.RANGES} if target and target.takes_ranges else needs


def _restored(recipe: Recipe, *, restore: bool) -> Pruning | None:
    """Return what the recipe's checkpoint was trained with; None if nothing, or if it is not to be restored."""
    file, prune, plain = recipe.model.checkpoint, recipe.prune, Prune()
    restored = read_pruning(file)
    if restored is None or not restore:
        return None
    trained = f"{restored.schedule.method}, rho {restored.schedule.rho or 'by layer'}"
    if recipe.model.recalibrate:
        logger.warning("%s is not pruned as it was trained, with %s", file, trained)
        return None
    for name in (*AMOUNTS, "calibration", "merges", "refit", *SCORING):
        if name == "seed" or getattr(prune, name) == getattr(plain, name):
            continue
        raise RecipeError(
            name,
            f"a setting beside {file}, which was trained with {trained}",
            "none: a checkpoint is pruned as it was trained",
            "recalibrate = true in the table [model] of a recipe allows it",
        )
    return restored
