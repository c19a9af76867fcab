"""What a number of units and rho stand for: the least important units, and their exact multiply-adds."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.errors import ArtefactError
from exporter.models.base import PrunableViT
from exporter.models.registry import load
from exporter.schedule.macs import dense_macs
from exporter.workflows.depth.exam import SCORING
from exporter.workflows.depth.models import SmallerModels
from tests.commands import Workplace
from tests.vits import make_vit
from tests.workflows.depth.collection import collection


@pytest.fixture(scope="module")
def models(workplace: Workplace) -> SmallerModels:
    return SmallerModels.of(*collection(workplace))


def test_the_least_important_units_go_first(models: SmallerModels) -> None:
    assert models.plan((0, 0)) == DepthPlan()
    assert models.plan((2, 1)) == DepthPlan((2, 4), (1,))
    assert models.least_rho == 0.5


def test_costs_are_those_of_the_pruned_model(models: SmallerModels, workplace: Workplace) -> None:
    vit = load(workplace.request)
    for counts, rho in (((0, 0), 1.0), ((1, 1), 0.7), ((2, 0), 0.5)):
        pruned = models.pruned(vit, counts, rho)
        assert pruned.macs.total == models.macs(counts, rho)
        assert pruned.vit.spec == apply_plan(vit, models.plan(counts)).spec
    assert models.macs((0, 0), 1.0) == dense_macs(models.vit.spec).total


@given(st.integers(0, 2), st.integers(0, 2), st.floats(0.2, 1.1))
def test_the_largest_rho_within_a_cost(
    models: SmallerModels, attention: int, activation: int, share: float
) -> None:
    counts, most = (attention, activation), share * dense_macs(models.vit.spec).total
    found = models.within(counts, most)
    if found is None:
        assert models.macs(counts, models.least_rho) > most
        return
    rho, macs = found
    assert models.least_rho <= rho <= 1 and macs == models.macs(counts, rho) <= most
    assert rho == 1 or models.macs(counts, min(1.0, rho + 0.01)) > most or macs == models.macs(counts, 1.0)


def test_other_folders_are_refused(workplace: Workplace, tmp_path: Path) -> None:
    vit, folder = collection(workplace)
    with pytest.raises(
        ArtefactError, match=rf"{SCORING} \| got no such file \| need the folder of depth collect"
    ):
        SmallerModels.of(vit, tmp_path)
    other: PrunableViT = make_vit(depth=5)
    with pytest.raises(ArtefactError, match=r"samples of a model of 4 layers \| need 5"):
        SmallerModels.of(other, folder)
