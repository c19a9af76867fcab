"""A schedule that does not fit its model, or whose parts contradict each other, is refused by name."""

from dataclasses import replace

import pytest

from exporter.errors import RecipeError, ScheduleError
from exporter.models.base import PrunableViT
from exporter.schedule.checks import check_fits
from exporter.schedule.plan import ScheduleSettings, manual_schedule, tome_schedule
from exporter.vocabulary import Method

TOME = ScheduleSettings(method=Method.TOME)


def test_check_fits_names_the_layer(tiny_vit: PrunableViT) -> None:
    good = manual_schedule(tiny_vit.spec, {2: 0.5}, ScheduleSettings())
    check_fits(good, tiny_vit.spec)
    for bad, message in (
        (replace(good, rates=(1.0, 0.0, 1.0, 1.0)), "layer 2"),
        (replace(good, keep=(16, 8, 9, 8)), "layer 3"),
        (replace(good, num_patches=17), "17 patches"),
        (replace(good, round_to=4), r"8 patches \| need 11"),
        (replace(good, round_to=0), "round_to 0"),
        (replace(good, alpha=float("nan")), "alpha nan"),
        (replace(good, seed=-1), "seed -1"),
        (replace(good, rates=good.rates[:3], keep=good.keep[:3]), "3 layers"),
    ):
        with pytest.raises(ScheduleError, match=message):
            check_fits(bad, tiny_vit.spec)


def test_a_schedule_whose_choices_do_not_go_together_does_not_fit(tiny_vit: PrunableViT) -> None:
    good = tome_schedule(tiny_vit.spec, 0.5, TOME)
    for bad in (
        replace(good, reduce="drop"),
        replace(good, scorer="intra"),
        replace(good, method=Method.A_STAR),
    ):
        with pytest.raises(RecipeError, match="for"):
            check_fits(bad, tiny_vit.spec)
