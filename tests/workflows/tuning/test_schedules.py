"""A candidate saves the share that it says, and no more than needed; a-STAR is counted once for all shares."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.calibration.calibrate import calibrate
from exporter.calibration.settings import CalibrationSettings
from exporter.data.images import list_images
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.recipes.planning import measured_macs
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.tuning import schedules as module
from exporter.workflows.tuning.axes import OWN, UNPRUNED, Candidate
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.networks import Network
from exporter.workflows.tuning.schedules import RHOS, Schedules
from tests.commands import Workplace
from tests.workflows.tuning.small import recipe_for

TOME = Candidate(mac_reduction=0.3)
FUSED = Candidate(method=Method.STAR, scorer="fused", reduce="drop", mac_reduction=0.4)
A_STAR = Candidate(method=Method.A_STAR, scorer="intra", reduce="drop", mac_reduction=0.3)


@pytest.fixture
def schedules_with(workplace: Workplace, tmp_path: Path) -> Callable[..., Schedules]:
    job = resolve(recipe_for(workplace))
    vit = steps.load_model(job.model)

    def make(*, calibrated: bool = True) -> Schedules:
        images, settings = list_images(workplace.images), CalibrationSettings(gamma=2, max_images=4)
        calibration = calibrate(vit, images, settings) if calibrated else None
        network = Network(vit, calibration=calibration)
        return Schedules({OWN: network}, job, Ledger(tmp_path, "test"))

    return make


@pytest.mark.parametrize("candidate", [TOME, FUSED, A_STAR], ids=lambda each: each.label)
def test_a_share_is_saved_and_no_more_than_needed(
    candidate: Candidate, schedules_with: Callable[..., Schedules]
) -> None:
    schedules = schedules_with()
    network = schedules.networks[OWN]
    whole = dense_macs(network.vit.spec).total
    counted = measured_macs(network.vit, schedules.job.images, network.calibration, 32)

    def saved(one: Candidate) -> float:
        schedule = schedules.of(one)
        assert schedule is not None
        return 1 - counted(schedule) / whole

    schedule, share = schedules.of(candidate), candidate.mac_reduction
    assert schedule is not None and schedule.rho is not None and share is not None
    # Between the rho at which a-STAR's counts are made, they are taken to be linear.
    tolerance = 0.02 if schedule.adaptive else 0.0
    assert saved(candidate) >= share - tolerance
    # ToMe merges whole patches of 25 in every layer: a few rho have the same counts.
    milder = replace(candidate, mac_reduction=None, rho=min(1.0, schedule.rho + 0.15))
    assert saved(milder) < share + tolerance
    assert saved(UNPRUNED) == 0


def test_shares_of_one_way_need_one_count(
    schedules_with: Callable[..., Schedules], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[float] = []

    def counting(*given: object) -> Callable[..., float]:
        measure = measured_macs(*given)  # type: ignore[arg-type]

        def macs(schedule: Schedule) -> float:
            counts.append(schedule.rho or 0.0)
            return measure(schedule)

        return macs

    monkeypatch.setattr(module, "measured_macs", counting)
    schedules = schedules_with()
    found = [schedules.of(replace(A_STAR, mac_reduction=share)) for share in (0.1, 0.2, 0.3)]
    assert counts == list(RHOS)
    rhos = [each.rho for each in found if each is not None and each.rho is not None]
    assert rhos == sorted(rhos, reverse=True) and len(set(rhos)) == 3


def test_what_is_out_of_reach_has_no_schedule(schedules_with: Callable[..., Schedules]) -> None:
    assert schedules_with().of(replace(TOME, mac_reduction=0.95)) is None
    assert schedules_with(calibrated=False).of(FUSED) is None
    assert schedules_with(calibrated=False).of(TOME) is not None


def test_weights_that_were_trained_are_pruned_as_they_were_trained(
    schedules_with: Callable[..., Schedules],
) -> None:
    schedules = schedules_with()
    network = replace(schedules.networks[OWN], given=schedules.of(FUSED))
    one = network.candidate("tuned")
    assert one is not None and one.prunes and one.method == Method.STAR
    assert schedules.networks[OWN].candidate(OWN) is None
    both = replace(schedules, networks={**schedules.networks, "tuned": network}, _known={})
    assert both.of(one) == network.given
    assert network.digest != schedules.networks[OWN].digest
