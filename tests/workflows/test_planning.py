"""Every amount becomes a schedule in one place."""

import pytest

from exporter.errors import ScheduleError
from exporter.models.base import PrunableViT
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, pruned_macs, schedule_macs
from exporter.schedule.plan import ScheduleSettings, manual_schedule, tome_schedule
from exporter.vocabulary import Method
from exporter.workflows.amount import Given, MacShare, Rates, Rho, Speedup
from exporter.workflows.planning import Planner, plan

ACS = (0.1, 0.5, 0.3, 0.9)
INTRA = ScheduleSettings("intra")


def test_rho_rates_and_a_schedule(tiny_vit: PrunableViT) -> None:
    planner = Planner(tiny_vit.spec, INTRA, ACS)
    assert plan(Rho(0.5), planner).keep == (16, 12, 11, 6)
    given = manual_schedule(tiny_vit.spec, {2: 0.5}, INTRA)
    assert plan(Rates({2: 0.5}), Planner(tiny_vit.spec, INTRA)) == given
    assert plan(Given(given), planner) is given


def test_a_share_of_the_macs(tiny_vit: PrunableViT) -> None:
    spec = tiny_vit.spec
    schedule = plan(MacShare(0.3), Planner(spec, INTRA, ACS))
    assert pruned_macs(spec, schedule.keep).total <= 0.7 * dense_macs(spec).total


def test_tome_follows_no_acs(tiny_vit: PrunableViT) -> None:
    spec, scoring = tiny_vit.spec, ScheduleSettings(method=Method.TOME)
    planner = Planner(spec, scoring)
    assert plan(Rho(0.5), planner) == tome_schedule(spec, 0.5, scoring)
    schedule = plan(MacShare(0.2), planner)
    assert schedule.method == Method.TOME
    # Merging counts: without it, more would be saved.
    assert pruned_macs(spec, schedule.keep).total < schedule_macs(spec, schedule).total
    assert schedule_macs(spec, schedule).total <= 0.8 * dense_macs(spec).total
    assert plan(Rates({2: 0.5}), planner).keep == (16, 8, 8, 8)


def test_a_share_under_a_star_counts_on_images(tiny_vit: PrunableViT) -> None:
    planner = Planner(tiny_vit.spec, ScheduleSettings("intra", method=Method.A_STAR), ACS)
    with pytest.raises(ScheduleError, match="a-star without images"):
        plan(MacShare(0.3), planner)

    def macs(schedule: Schedule) -> float:
        return dense_macs(tiny_vit.spec).total * (schedule.rho or 1.0)

    assert plan(MacShare(0.3), planner, image_macs=macs).rho == pytest.approx(0.7, abs=1e-3)


def test_a_speed_up_is_searched(tiny_vit: PrunableViT) -> None:
    planner, asked = Planner(tiny_vit.spec, INTRA, ACS), []

    def search(wanted: Speedup) -> Schedule:
        asked.append(wanted.speedup)
        return planner.of_rho(0.5)

    assert plan(Speedup(1.5), planner, search=search).rho == 0.5
    assert asked == [1.5]
    with pytest.raises(ScheduleError, match="speedup"):
        plan(Speedup(1.5), planner)


def test_acs_is_wanted_where_rates_follow_it(tiny_vit: PrunableViT) -> None:
    with pytest.raises(ScheduleError, match=r"ACS \| got 0 values \| need 4"):
        plan(Rho(0.5), Planner(tiny_vit.spec, INTRA))


def test_a_schedule_of_another_model(tiny_vit: PrunableViT) -> None:
    given = manual_schedule(tiny_vit.spec, {2: 0.5}, INTRA)
    other = Schedule(**{**vars(given), "num_patches": 17})
    with pytest.raises(ScheduleError, match="17 patches"):
        plan(Given(other), Planner(tiny_vit.spec, INTRA))
