"""rho for a measured speed-up, on a machine whose time is a line in MACs that the test draws."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from exporter.errors import RecipeError
from exporter.evaluation.benchmark import Throughput
from exporter.models.base import PrunableViT
from exporter.models.registry import ModelRequest, describe
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, mean_macs, pruned_macs
from exporter.schedule.plan import ScheduleSettings, star_schedule
from exporter.targets import Target
from exporter.vocabulary import Method
from exporter.workflows import search as search_module
from exporter.workflows.measuring import noise
from exporter.workflows.progress import Silent
from exporter.workflows.recipes.amount import Speedup
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.search import Search, find_rho, sweep, way_of
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.bench import Bench, Timed
from exporter.workflows.tuning.networks import Network
from tests.calibration.acs import acs_alone
from tests.pruning.adaptive import varied_images
from tests.schedule.published import DEIT_S
from tests.vits import make_model

SPEC = describe(ModelRequest("deit_small_patch16_224")).spec
DENSE = dense_macs(SPEC)
WAY = way_of(ScheduleSettings(method=Method.STAR))
ACS = [0.1, 0.5, 0.3, 0.9]


@dataclass
class FakeBench:
    """A machine that takes `fixed_ms` and 10 ms a dense model's MACs; `asked` has each rho that it measured."""

    fixed_ms: float
    noise_share: float = 0.0
    asked: list[float | None] = field(default_factory=list)
    random: Any = field(default_factory=lambda: np.random.default_rng(0))
    job: Any = field(default_factory=lambda: resolve(Recipe()))

    def schedule(self, candidate: Candidate) -> Schedule:
        return star_schedule(SPEC, DEIT_S.acs, candidate.rho or 1.0, ScheduleSettings())

    def macs(self, candidate: Candidate) -> float:
        return pruned_macs(SPEC, self.schedule(candidate).keep).total if candidate.rho else DENSE.total

    def speeds(self, some: Sequence[Candidate], targets: Sequence[Target]) -> dict[Candidate, Timed]:
        self.asked += [each.rho for each in some if each.rho]
        return {each.on(target.name): self._time(each) for each in some for target in targets}

    def _time(self, candidate: Candidate) -> Timed:
        noise = 1 + self.noise_share * self.random.standard_normal(20)
        rounds = (self.fixed_ms + 10 * self.macs(candidate) / DENSE.total) * noise
        return Timed(
            Throughput(8, 8e3 / float(np.median(rounds)), 1.0, 1.0, (1.0, 1.0), tuple(rounds.tolist())), 5
        )


def found_on(bench: FakeBench, wanted: Speedup) -> Search:
    return find_rho(WAY, bench, wanted, Silent())  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [1.1, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("fixed_ms", [0.0, 1.0])
def test_the_target_is_met_closely_and_quickly(target: float, fixed_ms: float) -> None:
    bench = FakeBench(fixed_ms)
    result, asked = found_on(bench, Speedup(target)), bench.asked
    assert result.schedule is not None and result.found is not None
    assert target <= result.found.comparison.quartiles[0] < 1.05 * target
    assert result.schedule.rho == result.found.rho == asked[-1]
    assert [point.rho for point in result.tried] == asked
    assert len(asked) <= 4
    assert f"× at batch 8: rho {result.found.rho:.4g}, {len(asked)} tried>" in repr(result)


def test_under_noise_the_quartile_reaches_the_target_not_the_median_alone() -> None:
    bench = FakeBench(1.0, noise_share=0.02)
    result, asked = found_on(bench, Speedup(1.5, measurements=8)), bench.asked
    assert result.found is not None
    assert result.found.comparison.quartiles[0] >= 1.5
    assert result.found.rho == max(
        point.rho for point in result.tried if point.comparison.quartiles[0] >= 1.5 and point.rho
    )
    assert len(asked) <= 8


def test_out_of_reach_is_known_after_one_measurement() -> None:
    bench = FakeBench(fixed_ms=10.0)  # at most 2 ×
    result, asked = found_on(bench, Speedup(2.5)), bench.asked
    assert (result.schedule, result.found, len(asked)) == (None, None, 1)
    assert result.tried[0].comparison.speedup < 2
    assert repr(result) == "<Search for 2.5 × at batch 8: nothing found, 1 tried>"


@pytest.mark.parametrize(("speedup", "steps"), [(1.0, 6), (0.5, 6), (float("nan"), 6), (1.5, 1)])
def test_targets_that_are_none(speedup: float, steps: int) -> None:
    with pytest.raises(RecipeError, match=r"speedup \| got|measurements \| got 1"):
        Speedup(speedup, steps)


@pytest.mark.ort
def test_candidates_are_lowered_and_timed_in_one_run(tiny_vit: PrunableViT) -> None:
    job = resolve(Recipe(method=Method.STAR, scorer="intra", batch=2, rounds=5, threads=1))
    network = Network(tiny_vit, calibration=acs_alone(tiny_vit, ACS))
    with Bench.of(network, job, noise(tiny_vit.spec, "float32", 3)) as bench:
        found = sweep(bench, [replace(way_of(job.scoring), rho=rho) for rho in (0.8, 0.5)])
    assert [point.rho for point in found.points] == [0.8, 0.5]
    assert found.dense_gmacs > found.points[0].gmacs > found.points[1].gmacs
    for point in found.points:
        assert len(point.throughput.rounds_ms) == 5
        ratios = np.divide(found.dense.rounds_ms, point.throughput.rounds_ms)
        assert point.comparison.speedup == pytest.approx(np.median(ratios))


@pytest.mark.ort
def test_what_a_star_keeps_of_the_images_is_its_multiply_adds(tiny_vit: PrunableViT) -> None:
    job = resolve(Recipe(method=Method.A_STAR, scorer="intra", batch=4, rounds=5, threads=1))
    network, images = Network(tiny_vit, calibration=acs_alone(tiny_vit, ACS)), varied_images(tiny_vit, 4)
    candidate = replace(way_of(job.scoring), rho=0.8)
    with Bench.of(network, job, images.numpy()) as bench:
        (point,) = sweep(bench, [candidate]).points
        pruned = bench.pruned(candidate)
    assert point.gmacs == mean_macs(tiny_vit.spec, pruned.patches_left(images).numpy()).gmacs
    assert point.gmacs < pruned.macs.gmacs


def test_a_model_of_the_callers_is_searched_in_place_of_a_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []

    def searching(wanted: Speedup, vit: PrunableViT, *_: Any, **__: Any) -> Search:
        searched.append((wanted, vit))
        return Search(wanted.speedup, 8, None, None, ())

    monkeypatch.setattr(search_module, "search_model", searching)
    module = make_model().train()
    search_module.search(Recipe(speedup=1.5), 3, model=module)
    ((wanted, vit),) = searched
    assert (wanted.measurements, vit.spec.name) == (3, "vit")
    assert vit.model is not module and module.training
    for name, value in module.state_dict().items():
        assert torch.equal(value, vit.model.state_dict()[name])
