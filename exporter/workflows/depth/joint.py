"""Find how many units to remove and how far to prune patches, together, for multiply-adds or a measured latency."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.depth.checkpoint import describe, read_depth
from exporter.depth.joint import Counts, Pair, best_pair, counts_of, front
from exporter.depth.predictor import CrossValidation, Predictor, accuracies_of, fit_best
from exporter.depth.samples import SampleBook
from exporter.errors import DepthError
from exporter.files import writable_folder, written_beside
from exporter.formats.canonical_json import save_json
from exporter.schedule.macs import dense_macs
from exporter.workflows.depth.joint_settings import JointSettings
from exporter.workflows.depth.latency import PairClock, Timed, within_ms
from exporter.workflows.depth.models import SmallerModels
from exporter.workflows.progress import Silent, Stages
from exporter.workflows.recipes.job import Job

__all__ = ["Joint", "joint_to"]

# Shares of the multiply-adds at which the front has points.
FRONT = tuple(share / 20 for share in range(20, 0, -1))


@dataclass(frozen=True)
class Joint:
    """The pair with the best prediction within a limit.

    `candidates` has for each number of units the pair of as many multiply-adds as `best` at most, the best
    prediction first; `timed` those that were measured. `front` goes over all costs, `tokens` is that of patches
    alone, and `depth` that of units alone. `rmse` has the cross-validation error of each degree, in points.
    """

    model: str
    dense_gmacs: float
    best: Pair
    candidates: tuple[Pair, ...]
    timed: tuple[Timed, ...]
    front: tuple[Pair, ...]
    tokens: tuple[Pair, ...]
    depth: tuple[Pair, ...]
    predictor: Predictor
    rmse: dict[int, float]


def joint_to(
    job: Job, settings: JointSettings, collected: Path, out: Path, stages: Stages | None = None
) -> Joint:
    """Find the pair, and write it with the front to `out`, as `joint.json` and `front.png`.

    Args:
        job: The whole model, and how a latency is measured.
        settings: The limit.
        collected: The folder of a collection with several rho.
        out: A folder.
        stages: Shows progress.

    Raises:
        UserError: The collection is of another model or has one rho alone, or its samples do not reach the limit.
    """
    folder = writable_folder(out)
    if read_depth(job.model.checkpoint) is not None:
        raise DepthError(str(job.model.checkpoint), "a model without some units", "the whole one")
    search = _Search.of(SmallerModels.of(describe(job.model), collected), collected)
    if settings.max_ms is None:
        times: tuple[Timed, ...] = ()
        best = search.saving(settings.mac_reduction or 0.0)
    else:
        clock = PairClock(job, search.models, stages or Silent())
        times = within_ms(search.within, clock, search.dense_gmacs, settings.max_ms)
        best = _fast_enough(times, settings.max_ms)
    result = search.result(best, times)
    save_json(result, folder / "joint.json")
    _draw(result, folder / "front.png")
    return result


@dataclass(frozen=True, eq=False)
class _Search:
    """A predictor of units and rho, and the models that it predicts; costs are in GMACs."""

    models: SmallerModels
    predictor: Predictor
    rmse: dict[int, float]
    counts: Sequence[Counts]

    @classmethod
    def of(cls, models: SmallerModels, collected: Path) -> "_Search":
        """Fit the predictor to a collection.

        Raises:
            DepthError: There are too few samples, or all have the same rho.
        """
        samples = [each.sample for each in SampleBook(collected).samples()]
        rmse = CrossValidation(samples).rmse(accuracies_of(samples))
        return cls(models, fit_best(samples), rmse, counts_of(samples, models.vit.spec.depth))

    @property
    def dense_gmacs(self) -> float:
        """Those of the whole model."""
        return dense_macs(self.models.vit.spec).gmacs

    def pairs(self, gmacs: float, counts: Sequence[Counts]) -> Iterator[Pair]:
        """Yield the pair of each of these numbers of units within a cost."""
        for each in counts:
            found = self.models.within(each, gmacs * 1e9)
            if found is not None:
                yield self._pair(each, *found)

    def within(self, gmacs: float) -> Pair:
        """Return the best pair within a cost, or the cheapest of all if it costs more."""
        cheapest = (self._pair(each, self.models.least_rho) for each in self.counts)
        return best_pair(self.pairs(gmacs, self.counts)) or min(cheapest, key=lambda pair: pair.gmacs)

    def saving(self, share: float) -> Pair:
        """Return the best pair that saves a share of the multiply-adds.

        Raises:
            DepthError: None does.
        """
        most = (1 - share) * self.dense_gmacs
        best = self.within(most)
        if best.gmacs > most:
            expected = f"at most {1 - best.gmacs / self.dense_gmacs:.3f}, as far as the samples go"
            raise DepthError("mac_reduction", f"{share:g}", expected, "collect more --units or lower --rhos")
        return best

    def result(self, best: Pair, times: tuple[Timed, ...]) -> Joint:
        """Return the result with the fronts."""
        costs, tokens = [share * self.dense_gmacs for share in FRONT], [(0, 0)]
        candidates = sorted(self.pairs(best.gmacs, self.counts), key=lambda pair: -pair.accuracy)
        return Joint(
            model=self.models.vit.spec.name,
            dense_gmacs=self.dense_gmacs,
            best=best,
            candidates=tuple(candidates),
            timed=times,
            front=front([best, *(pair for cost in costs for pair in self.pairs(cost, self.counts))]),
            tokens=front(pair for cost in costs for pair in self.pairs(cost, tokens)),
            depth=front(self._pair(each, 1.0) for each in self.counts),
            predictor=self.predictor,
            rmse=self.rmse,
        )

    def _pair(self, counts: Counts, rho: float, macs: float | None = None) -> Pair:
        macs = self.models.macs(counts, rho) if macs is None else macs
        return Pair.predicted(self.predictor, self.models.vit.spec.depth, counts, rho, macs)


def _fast_enough(times: Sequence[Timed], max_ms: float) -> Pair:
    best = best_pair(each.pair for each in times if each.median_ms <= max_ms)
    if best is None:
        least = min(each.median_ms for each in times)
        expected = f"at least {least:.3g} ms, the fastest pair that the samples cover"
        raise DepthError("max_ms", f"{max_ms:g}", expected, "collect more --units or lower --rhos")
    return best


def _draw(found: Joint, path: Path) -> None:
    """Draw the fronts, and the pair."""
    from exporter.evaluation.report.chart import costs_chart  # noqa: PLC0415  (matplotlib is slow to load)

    lines = {"units and rho": found.front, "rho alone": found.tokens, "units alone": found.depth}
    content = costs_chart(
        {name: [(each.gmacs, each.accuracy) for each in line] for name, line in lines.items()},
        (found.best.gmacs, found.best.accuracy),
        title=found.model,
    )
    with written_beside(path) as partial:
        partial.write_bytes(content)
