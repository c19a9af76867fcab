"""A recipe that is opened: checked before any work, and what it names read once, on first use."""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from exporter.calibration import sums
from exporter.calibration.calibrate import calibrate_to, resized_to
from exporter.calibration.record import Calibration, check_calibration, load_calibration
from exporter.data.batches import draw_images
from exporter.data.class_map import MAP_HINT, is_order, read_class_map
from exporter.data.images import ImageFolder, check_readable, sample
from exporter.data.source import class_mismatch, images_at
from exporter.depth.checkpoint import describe_vit
from exporter.errors import CheckpointError, RecipeError
from exporter.evaluation.parity.reference import image_cost
from exporter.files import PathLike
from exporter.machine import VNNI, cpu_lacks
from exporter.models.base import PrunableViT
from exporter.models.identity import read_identity
from exporter.models.registry import check_device
from exporter.models.request import ModelRequest
from exporter.models.spec import with_outputs
from exporter.pruning.checkpoint import Pruning, read_pruning
from exporter.pruning.count_search import search_counts
from exporter.pruning.pruned_vit import PrunedViT
from exporter.pruning.refit import bytes_to_refit, refit
from exporter.records import Gain, ModelSpec, Schedule
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.schedule.plan import log_oddities, schedule_of
from exporter.schedule.policy import UNSAID, Given, Need, Policy, check_needs, resolve
from exporter.schedule.prune import AMOUNTS, SCORING, Prune
from exporter.settings.fields import Settings, changes_of, fields_of
from exporter.targets import ONNXRUNTIME_INT8, OPENVINO, OPENVINO_INT8, Target
from exporter.tensor_names import Array
from exporter.vocabulary import InputKind
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipe import A_MODEL, Images, Recipe, needed
from exporter.workflows.steps import OwnModel, loaded

# Activation ranges settle within a few dozen images.
RANGE_IMAGES = 64
# Half of them are read for the search of counts.
READ_FOR_COUNTS = 512
# A refit reads three quarters of so many, or of those whose tokens fit into so many bytes.
READ_FOR_REFIT, REFIT_BYTES = 2048, 4 << 30

A_FOLDER = "a folder of images"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Opened:
    """A recipe whose settings go together: its model, calibration and images are read once, on first use.

    `recipe` has, beside the user's settings, the name of the checkpoint's network. `policy` is what it says of
    pruning, or what its schedule does: that of a file, or of the `restored` checkpoint, which was trained with it.
    """

    recipe: Recipe
    policy: Policy
    restored: Pruning | None = None
    own: OwnModel | None = None
    stages: Stages = field(default_factory=Silent)
    _listings: dict[Path, ImageFolder] = field(default_factory=dict, repr=False)

    @cached_property
    def whole(self) -> PrunableViT:
        """The model with all its layers."""
        with nullcontext() if isinstance(self.own, PrunableViT) else self.stages.stage("model"):
            return loaded(self.recipe.model, self.own)

    @cached_property
    def vit(self) -> PrunableViT:
        """The model with the outputs that the recipe names; ModelError where it lacks one."""
        return with_outputs(self.whole, self.recipe.model.outputs)

    @cached_property
    def described(self) -> PrunableViT:
        """The shape of `whole`, without weights."""
        needed(self.recipe.model.name or None, "--model", A_MODEL)
        return describe_vit(self.recipe.model)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The given calibration, with all layers of the model; None without one."""
        return self.calibration_for(self.whole.spec, self.whole.weights_sha256)

    @property
    def calibration_of_vit(self) -> Calibration | None:
        """The given calibration, without the layers that no output needs. Errors as of `calibration`."""
        return (
            None if self.calibration is None else self.calibration.of_first(self.vit.spec.depth)
        )

    def calibration_for(self, spec: ModelSpec, weights_sha256: str = "") -> Calibration | None:
        """Read the given calibration; weights are not compared if the hash is "". Errors as of `calibration`."""
        prune = self.recipe.prune
        if self.restored is not None and self.restored.calibration is not None:
            # It was measured with the weights before they were trained further.
            check_calibration(self.restored.calibration, spec, "")
            return self.restored.calibration
        if prune.calibration is None:
            return None
        made = load_calibration(prune.calibration)
        calibration = resized_to(made, spec) if prune.interpolate else made
        check_calibration(calibration, spec, weights_sha256 if calibration is made else "")
        return calibration

    def calibrate(self, path: PathLike, *, keep_sums: bool = False) -> Calibration:
        """Return the given calibration, or calibrate on the images into a file.

        An interrupted calibration continues when called again; with `keep_sums` a finished one is read again too.
        """
        with self.stages.stage("calibration") as advance:
            if self.calibration is not None:
                return self.calibration
            settings = self.recipe.calibrate
            return calibrate_to(
                Path(path), self.whole, self.folder, settings, advance, keep_sums=keep_sums
            )

    @cached_property
    def folder(self) -> ImageFolder:
        """The images to calibrate on, without labels."""
        place = needed(self.recipe.images.images, "--images", A_FOLDER)
        found = self._listings.get(place) or images_at(place)
        return replace(found, files=tuple(replace(each, label=None) for each in found.files))

    @cached_property
    def labelled(self) -> ImageFolder:
        """The images to train on, with their labels. Errors as of `folder`."""
        place = needed(self.recipe.images.images, "--images", "labelled images to train on")
        return self._with_labels(place, self.whole.spec)

    @cached_property
    def evaluated(self) -> ImageFolder:
        """The images to compare and measure on, drawn by the seed. Errors as of `folder`."""
        images, spec = self.recipe.images, self.vit.spec
        place = needed(images.eval_images or images.images, "--images", A_FOLDER)
        folder = self._with_labels(place, spec)
        found = class_mismatch(folder, spec.num_classes)
        if found:
            text = "%s: %s, and the model has %d classes: accuracy is not measured (%s)"
            logger.warning(text, place, found, spec.num_classes, MAP_HINT)
        return sample(folder, images.max_eval_images, images.seed)

    def _with_labels(self, place: Path, spec: ModelSpec) -> ImageFolder:
        order = self.recipe.images.class_map
        self._listings[place] = images_at(
            place, spec.num_classes, order, names=spec.class_names
        )
        return self._listings[place]

    def ranges(self, *targets: Target) -> Array | None:
        """Return calibration images for INT8 activation ranges; None if there are none or no target needs them."""
        if self.recipe.images.images is None:
            return None
        folder, most = self.folder, self.recipe.calibrate.max_images
        if not any(target.takes_ranges for target in targets):
            return None
        count = min(most, RANGE_IMAGES) if isinstance(most, int) else RANGE_IMAGES
        preprocessing, kind = self.vit.spec.preprocessing, self.recipe.lower.input_kind
        return draw_images(folder, count, self.recipe.calibrate.seed, preprocessing, kind)

    def schedule(self, vit: PrunableViT, calibration: Calibration | None) -> Schedule:
        """Return the schedule for a model, this one or a part of it; a MAC share of a-STAR is solved on images."""
        if Need.SEARCH in self.policy.needs:
            with self.stages.stage("counts, on calibration images"):
                return self._searched(vit, calibration)
        if Need.COST in self.policy.needs:
            with self.stages.stage("rho, on calibration images"):
                cost = self.image_cost(vit, calibration)
                schedule = schedule_of(self.policy, vit.spec, calibration, image_cost=cost)
        else:
            schedule = schedule_of(self.policy, vit.spec, calibration)
        log_oddities(schedule, self.policy, vit.spec)
        return schedule

    def _searched(self, vit: PrunableViT, calibration: Calibration | None) -> Schedule:
        spec, share = vit.spec, self.recipe.prune.mac_reduction
        assert share is not None  # `resolve`
        found = search_counts(
            vit,
            self.policy,
            self._drawn(READ_FOR_COUNTS, spec),
            target=(1.0 - share) * dense_macs(spec).total,
            cost=lambda schedule: schedule_macs(spec, schedule).total,
            inter=None if calibration is None else calibration.inter,
            inter_sha256="" if calibration is None else calibration.inter_sha256,
        )
        logger.warning("%s", found.told)
        return found.schedule

    def refitted(self, pruned: PrunedViT) -> tuple[PrunedViT, Gain]:
        """Refit a copy of a pruned model on calibration images; errors as of `exporter.pruning.refit.refit`."""
        spec = pruned.vit.spec
        most = min(READ_FOR_REFIT, REFIT_BYTES // bytes_to_refit(spec))
        with self.stages.stage("refit, on calibration images") as advance:
            model, gain = refit(pruned, self._drawn(most, spec), advance)
        logger.warning("refit: %s", gain.words)
        return model, gain

    def _drawn(self, most: int, spec: ModelSpec) -> Sequence[Tensor]:
        """Return calibration images in batches of 32, at most so many."""
        seed, preprocessing = self.recipe.images.seed, spec.preprocessing
        images = draw_images(self.folder, most, seed, preprocessing, InputKind.FLOAT32)
        return torch.from_numpy(images).split(32)

    def image_cost(
        self, vit: PrunableViT, calibration: Calibration | None
    ) -> Callable[[Schedule], float]:
        """Return a function: mean useful MACs of some calibration images under an a-STAR schedule."""
        images, batch = self.recipe.images, self.recipe.measure.batch
        count, preprocessing = images.check_images, vit.spec.preprocessing
        pixels = draw_images(self.folder, count, images.seed, preprocessing, InputKind.FLOAT32)
        return image_cost(vit, pixels, calibration, batch)

    @property
    def on_noise(self) -> bool:
        """Whether models are compared on noise: a checkpoint brings all else, and no images are given."""
        images = self.recipe.images
        return (
            self.restored is not None and images.images is None and images.eval_images is None
        )

    @property
    def has_calibration(self) -> bool:
        """Whether there is a calibration to read."""
        restored = self.restored is not None and self.restored.calibration is not None
        return restored or self.recipe.prune.calibration is not None

    @property
    def as_given(self) -> Schedule | None:
        """The given schedule, where no number for how much to prune scales it."""
        amount = self.policy.amount
        return amount.schedule if isinstance(amount, Given) else None

    @property
    def reads_calibration(self) -> bool:
        """Whether ACS or inter-layer scores are needed, or a calibration is given."""
        return self.has_calibration or not self.policy.needs.isdisjoint({Need.ACS, Need.INTER})

    def check_needs(self, needs: frozenset[Need] = frozenset()) -> None:
        """Raise RecipeError unless everything that the target needs is given, and these."""
        if self.recipe.lower.row.takes_ranges:
            needs |= {Need.RANGES}
        images = self.recipe.images.images is not None
        check_needs(needs, images=images, calibration=self.has_calibration)

    def check_amount(self, verb: str) -> None:
        """Raise RecipeError if nothing says how much to prune."""
        if self.policy.amount == UNSAID:
            raise RecipeError(verb, "no amount to prune", f"one of {', '.join(AMOUNTS)}")


def open_recipe(
    recipe: Recipe,
    stages: Stages | None = None,
    model: OwnModel | None = None,
    *,
    restore: bool = True,
    dense: bool = False,
    refits: bool = False,
) -> Opened:
    """Check a recipe, before any work; nothing is loaded yet.

    Args:
        recipe: The settings.
        stages: Shows the stages of what is read later.
        model: A ViT to use instead of the recipe's: an adapter, or a module, which is copied.
        restore: Whether a checkpoint is pruned as it was trained, if it says how.
        dense: Whether only the dense model is lowered, for a target of any method.
        refits: Whether the caller refits a pruned model where the recipe says so.
    """
    if recipe.prune.refit and not refits:
        raise RecipeError("refit", "true", "false: only compile refits a pruned model")
    check_device(recipe.model.device)
    _check_places(recipe.images)
    restored = _restored(recipe, restore=restore)
    policy = resolve(recipe.prune, None if restored is None else restored.schedule)
    recipe.lower.check_method(None if dense else policy.method)
    whole = replace(
        recipe,
        model=replace(recipe.model, name=recipe.model.name or _own_name(recipe.model)),
        calibrate=replace(recipe.calibrate, relevance=Need.INTER in policy.needs),
    )
    return Opened(whole, policy, restored, model, stages or Silent())


def _check_places(images: Images) -> None:
    if images.class_map is not None and not is_order(images.class_map):
        read_class_map(images.class_map, None)
    for place in (images.images, images.eval_images):
        if place is not None and os.path.isdir(place):  # noqa: PTH112  (that of Path may raise)
            check_readable(place)


def _own_name(request: ModelRequest) -> str:
    if request.checkpoint is None:
        return ""
    if not request.checkpoint.exists():
        raise CheckpointError(str(request.checkpoint), "no such file", "a checkpoint")
    identity = read_identity(request.checkpoint)
    return identity.name if identity else ""


def _restored(recipe: Recipe, *, restore: bool) -> Pruning | None:
    """Return what the recipe's checkpoint was trained with; None if nothing, or if it is not to be restored."""
    file, prune, plain = recipe.model.checkpoint, recipe.prune, Prune()
    restored = None if file is None else read_pruning(file)
    if restored is None or not restore:
        return None
    trained = f"{restored.schedule.method}, rho {restored.schedule.rho or 'by layer'}"
    if recipe.model.recalibrate:
        logger.warning("%s is not pruned as it was trained, with %s", file, trained)
        return None
    names = [
        name
        for name in (*AMOUNTS, "calibration", "counts", "refit", *SCORING)
        if name != "seed"
    ]
    other = next((name for name in names if getattr(prune, name) != getattr(plain, name)), None)
    if other is not None:
        raise RecipeError(
            f"--{other.replace('_', '-')}" if fields_of(Prune)[other].has_flag else other,
            f"a setting beside {file}, which was trained with {trained}",
            "none: a checkpoint is pruned as it was trained",
            "recalibrate = true in the table [model] of a recipe allows it",
        )
    return restored


def warn_of_few_images(schedule: Schedule, calibration: Calibration | None) -> None:
    """Log one line if halves of the calibration's images disagree in a layer that prunes by inter-layer scores."""
    if calibration is not None and schedule.inter_sha256:
        sums.warn_where_unsettled(
            calibration.overlap, schedule.pruning_layers, calibration.record.images
        )


def warn_where_slow(*targets: Target) -> None:
    """Log one line if INT8 for OpenVINO is among the targets, and this CPU makes it slower than fp32.

    With AVX-512 it is faster, also without VNNI.
    """
    if OPENVINO_INT8 in targets and cpu_lacks("avx512f", *VNNI):
        logger.warning(
            "this CPU has no VNNI and no AVX-512: %s is slower than %s here; %s is faster",
            *(each.name for each in (OPENVINO_INT8, OPENVINO, ONNXRUNTIME_INT8)),
        )


@dataclass(frozen=True)
class DryRun:
    """What a run starts from, found without running it.

    `settings` are those that differ from their defaults. `schedule` is None where it follows from `unknown`, which
    is "" otherwise; `gmacs_pruned` is then None too, unless a share of the multiply-adds is asked for.
    """

    model: str
    settings: dict[str, Any]
    gmacs_dense: float
    gmacs_pruned: float | None
    schedule: Schedule | None
    unknown: str


def dry_run(opened: Opened, recipe: Recipe, *settings: Settings, unknown: str = "") -> DryRun:
    """Plan what is opened, if its schedule follows from nothing that a run has yet to measure.

    `recipe` is as the user gave it, and `settings` what else the run was given. `unknown` is what the
    schedule follows from, "" to find out.
    """
    calibration, spec, policy = opened.calibration_of_vit, opened.vit.spec, opened.policy
    if not unknown and not policy.needs.isdisjoint({Need.SEARCH, Need.COST}):
        unknown = "the images"
    elif not unknown and Need.ACS in policy.needs and not opened.has_calibration:
        unknown = "the calibration"
    dense, schedule, pruned = dense_macs(spec).gmacs, None, None
    share = opened.recipe.prune.mac_reduction
    if share is not None:
        pruned = (1 - share) * dense
    if not unknown and policy.amount != UNSAID:
        schedule = schedule_of(policy, spec, calibration)
        log_oddities(schedule, policy, spec)
        pruned = schedule_macs(spec, schedule).gmacs
    return DryRun(spec.name, settings_of(recipe, *settings), dense, pruned, schedule, unknown)


def settings_of(recipe: Recipe, *settings: Settings) -> dict[str, Any]:
    """Return what differs from its default: in a recipe by section and key, e.g. `prune.rho`, else by name."""
    changes: dict[str, Any] = {}
    for section, values in recipe.changes().items():
        changes |= {f"{section}.{name}": value for name, value in values.items()}
    for record in settings:
        changes |= changes_of(record)
    return changes
