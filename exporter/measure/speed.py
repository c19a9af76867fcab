"""How fast a pruned model is beside the dense one, at every batch size of one run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from exporter.measure.batch_sweep import AtBatch
from exporter.measure.benchmark import Throughput


@dataclass(frozen=True)
class Speed:
    """The times at every batch size, none where no rounds were asked for; `batch` is that of the settings.

    `timed_at` is the day and the hour in UTC, and `command` what was typed, "" where it was none, or where no speed
    was measured: the same inputs then give the same report.
    """

    batch: int
    batches: tuple[AtBatch, ...] = ()
    timed_at: str = ""
    command: str = ""

    @classmethod
    def of(
        cls,
        batch: int,
        runs: Iterable[Mapping[str, Throughput]],
        pruned: str,
        mac_ratio: float,
    ) -> "Speed":
        """Return the times of the dense model and of the one called `pruned` in the same runs, see `AtBatch.of`."""
        batches = (
            AtBatch.of({**run, "pruned": run[pruned]}, mac_ratio) for run in runs
        )
        return cls(batch, tuple(batches))

    def noted(self, timed_at: str, command: str) -> "Speed":
        """Return the same with when and how it was measured, where it was."""
        if not self.batches:
            return self
        return replace(self, timed_at=timed_at, command=command)

    @property
    def at(self) -> AtBatch | None:
        """The times at the batch size of the settings."""
        measured = {at_batch.batch: at_batch for at_batch in self.batches}
        return measured.get(self.batch)

    @property
    def pays(self) -> bool:
        """Whether pruning is faster than the unpruned export at the settings' batch size, and slower at none."""
        outcomes = [at_batch.speed_up.outcome for at_batch in self.batches]
        is_faster = self.at is None or self.at.speed_up.outcome == "faster"
        return is_faster and "slower" not in outcomes
