"""Units and rho for a cost: by enumeration the best of all, and the front beside those of each alone."""

import json
from itertools import product
from pathlib import Path

import pytest

from exporter.depth.joint import Pair
from exporter.errors import DepthError
from exporter.workflows.depth.joint import Joint, joint_to
from exporter.workflows.depth.joint_settings import JointSettings
from exporter.workflows.depth.latency import PairClock, Timed
from exporter.workflows.depth.models import SmallerModels
from exporter.workflows.recipes.resolve import resolve
from tests.commands import Workplace
from tests.workflows.depth.collection import accuracy, collection


def found(workplace: Workplace, out: Path, **limit: float) -> Joint:
    _, folder = collection(workplace)
    job = resolve(workplace.recipe())
    return joint_to(job, JointSettings(**limit), folder, out)


def test_the_best_pair_of_a_cost_is_that_of_all(workplace: Workplace, tmp_path: Path) -> None:
    result = found(workplace, tmp_path, mac_reduction=0.3)
    models = SmallerModels.of(*collection(workplace))
    most = 0.7e9 * result.dense_gmacs
    reachable = [
        accuracy(attention, activation, rho)
        for attention, activation, rho in product(
            range(3), range(3), [step / 500 for step in range(250, 501)]
        )
        if attention + activation <= 2 and models.macs((attention, activation), rho) <= most
    ]
    best = result.best
    assert best.gmacs * 1e9 <= most
    assert best.accuracy == pytest.approx(max(reachable), abs=0.1)
    assert best.accuracy == pytest.approx(accuracy(*best.counts, best.rho), abs=1e-6)
    assert best == result.candidates[0] and result.timed == ()
    assert result.rmse[1] < 1e-6


def test_the_fronts(workplace: Workplace, tmp_path: Path) -> None:
    result = found(workplace, tmp_path, mac_reduction=0.3)
    assert {each.counts for each in result.tokens} == {(0, 0)}
    assert {each.rho for each in result.depth} == {1.0}
    assert result.best in result.front
    whole = [each for each in result.front if each.gmacs == pytest.approx(result.dense_gmacs)]
    assert [each.accuracy for each in whole] == pytest.approx([90.0])
    for alone in (*result.tokens, *result.depth):
        better = [each for each in result.front if each.gmacs <= alone.gmacs + 0.05 * result.dense_gmacs]
        assert max(each.accuracy for each in better) >= alone.accuracy - 1e-6
    told = json.loads((tmp_path / "joint.json").read_text())
    assert told["best"]["rho"] == result.best.rho
    assert (tmp_path / "front.png").read_bytes()[:4] == b"\x89PNG"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which a batch takes 1 ms, and 10 ms for 10⁶ multiply-adds of an image."""

    def time(_: PairClock, pair: Pair) -> Timed:
        return Timed(pair, 1 + 1e4 * pair.gmacs, 0.0)

    monkeypatch.setattr(PairClock, "__call__", time)


@pytest.mark.usefixtures("clock")
def test_a_latency_that_everything_meets_keeps_the_whole_model(workplace: Workplace, tmp_path: Path) -> None:
    result = found(workplace, tmp_path, max_ms=1e6)
    assert (result.best.counts, result.best.rho) == ((0, 0), 1.0)
    assert [each.pair for each in result.timed] == [result.best]


@pytest.mark.usefixtures("clock")
def test_a_latency_is_reached_by_the_best_pair_of_its_cost(workplace: Workplace, tmp_path: Path) -> None:
    saving = found(workplace, tmp_path, mac_reduction=0.3)
    result = found(workplace, tmp_path, max_ms=1 + 0.7e4 * saving.dense_gmacs)
    assert result.best.counts == saving.best.counts
    assert 0.9 * saving.best.gmacs < result.best.gmacs <= 0.7 * saving.dense_gmacs
    assert result.timed[-1].pair == result.best


@pytest.mark.usefixtures("clock")
def test_limits_out_of_reach(workplace: Workplace, tmp_path: Path) -> None:
    with pytest.raises(DepthError, match=r"mac_reduction \| got 0.95 \| need at most 0\.\d+, as far as"):
        found(workplace, tmp_path, mac_reduction=0.95)
    with pytest.raises(DepthError, match=r"max_ms \| got 1e-06 \| need at least .* ms, the fastest pair"):
        found(workplace, tmp_path, max_ms=1e-6)
