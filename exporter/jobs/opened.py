"""Open a recipe: check it before any work, and say what a run would start from."""

import logging
from dataclasses import dataclass
from typing import Any

from exporter.core.base.machine import VNNI, cpu_lacks
from exporter.core.base.progress import SILENT, Stages
from exporter.core.base.records import Schedule
from exporter.core.base.settings import Settings, changes_of
from exporter.core.base.targets import ONNXRUNTIME_INT8, OPENVINO, OPENVINO_INT8, Target
from exporter.core.schedule.macs import dense_macs, schedule_macs
from exporter.core.schedule.policy import Need
from exporter.jobs.network import Network
from exporter.jobs.recipe import Recipe
from exporter.jobs.variant import Variant
from exporter.models.own_vit import OwnModel
from exporter.models.registry import check_device

logger = logging.getLogger(__name__)


def open_recipe(
    recipe: Recipe,
    stages: Stages = SILENT,
    model: OwnModel | None = None,
    *,
    restore: bool = True,
    dense: bool = False,
    refits: bool = False,
) -> Variant:
    """Check a recipe, before any work, and return how it prunes and lowers which network; nothing is loaded yet.

    Args:
        recipe: The settings.
        stages: Shows the stages of what is read later.
        model: A ViT to use instead of the recipe's: an adapter, or a module, which is copied.
        restore: Whether a checkpoint is pruned as it was trained, if it says how.
        dense: Whether the variant is the dense model, for a target of any method.
        refits: Whether the caller refits a pruned model where the recipe says so.
    """
    check_device(recipe.model.device)
    network = Network.of(recipe, model, stages, restore=restore)
    policy = network.policy(dense=dense, refits=refits)
    return Variant(network, None if dense else policy, recipe.lower)


def warn_where_slow(*targets: Target) -> None:
    """Log one line if INT8 for OpenVINO is among the targets, and this CPU makes it slower than fp32.

    With AVX-512 it is faster, also without VNNI.
    """
    if OPENVINO_INT8 in targets and cpu_lacks("avx512f", *VNNI):
        logger.warning(
            "this CPU has no VNNI and no AVX-512: %s is slower than %s here; %s is faster",
            *(target.name for target in (OPENVINO_INT8, OPENVINO, ONNXRUNTIME_INT8)),
        )


@dataclass(frozen=True)
class DryRun:
    """What a run starts from, found without running it.

    `settings` are those that differ from their defaults. `schedule` is None where it follows from `unknown`, which
    is "" otherwise; `gmacs_pruned` is then None too, unless a share of the multiply-adds is asked for.
    `gmacs_dense` are those of the model as it came.
    """

    model: str
    settings: dict[str, Any]
    gmacs_dense: float
    gmacs_pruned: float | None
    schedule: Schedule | None
    unknown: str


def dry_run(
    variant: Variant, recipe: Recipe, *settings: Settings, unknown: str = ""
) -> DryRun:
    """Plan a variant, if its schedule follows from nothing that a run has yet to measure.

    `recipe` is as the user gave it, and `settings` what else the run was given. `unknown` is what the
    schedule follows from, "" to find out.
    """
    spec, policy = variant.network.vit.spec, variant.policy
    calibration = variant.calibration
    if not unknown and Need.COST in variant.needs:
        unknown = "the images"
    elif not unknown and Need.ACS in variant.needs and calibration is None:
        unknown = "the calibration"
    dense, schedule, pruned = dense_macs(spec.as_it_came).gmacs, None, None
    share = recipe.prune.mac_reduction
    if share is not None:
        pruned = (1 - share) * dense
    if not unknown and policy is not None and policy.amount.is_said:
        variant.log_oddities()
        schedule = variant.schedule
        pruned = schedule_macs(spec, schedule).gmacs
    return DryRun(
        spec.name, settings_of(recipe, *settings), dense, pruned, schedule, unknown
    )


def settings_of(recipe: Recipe, *settings: Settings) -> dict[str, Any]:
    """Return what differs from its default: in a recipe by section and key, e.g. `prune.rho`, else by name."""
    changes: dict[str, Any] = {}
    for section, values in recipe.changes().items():
        changes |= {f"{section}.{name}": value for name, value in values.items()}
    for record in settings:
        changes |= changes_of(record)
    return changes
