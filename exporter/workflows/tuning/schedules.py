"""The schedules of candidates: rho is solved for the share of multiply-adds that each is to save."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from exporter.errors import ScheduleError
from exporter.records import Schedule
from exporter.schedule.plan import keep_everything
from exporter.schedule.rates import LEAST_RHO
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import Planner, measured_macs, solved
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.networks import Network, measurement

__all__ = ["Schedules"]

# Images on which a-STAR's multiply-adds are counted, and the rho at which they are.
COUNTED = 32
RHOS = (LEAST_RHO, *(step / 12 for step in range(1, 13)))
BATCH = 32


@dataclass(frozen=True, eq=False)
class Schedules:
    """Solves each schedule once: for these networks, with what a job says beside the axes, and its images."""

    networks: Mapping[str, Network]
    job: Job
    ledger: Ledger
    _known: dict[Candidate, Schedule | None] = field(default_factory=dict)

    def of(self, candidate: Candidate) -> Schedule | None:
        """Return the schedule of a candidate, whatever its target.

        None where its amount is out of reach, or a calibration is missing.
        """
        anywhere = candidate.on("")
        if anywhere not in self._known:
            self._known[anywhere] = self._solved(anywhere)
        return self._known[anywhere]

    def _solved(self, candidate: Candidate) -> Schedule | None:
        network, amount = self.networks[candidate.weights], candidate.amount
        if candidate.given:
            return network.given
        if amount is None:
            return keep_everything(network.vit.spec)
        shape = self.job.shape
        if shape is None and candidate.calibrated and network.calibration is None:
            return None
        scoring = replace(self.job.scoring, **candidate.how)
        planner = Planner.of(network.vit.spec, scoring, network.calibration, shape)
        counted = candidate.method.counts_vary and candidate.rho is None
        macs = self._macs_by_rho(candidate, planner) if counted else None
        try:
            return solved(amount, planner, macs)
        except ScheduleError:
            return None

    def _macs_by_rho(self, candidate: Candidate, planner: Planner) -> Callable[[Schedule], float]:
        """Return a-STAR's mean multiply-adds, counted on images at a few rho and linear in between.

        To solve rho for every share by itself would run the model ten times as often.
        """
        network = self.networks[candidate.weights]

        def count() -> list[float]:
            images = replace(self.job.images, check_images=COUNTED)
            measured = measured_macs(network.vit, images, network.calibration, BATCH)
            return [measured(planner.of_rho(rho)) for rho in RHOS]

        way = replace(candidate, mac_reduction=None)
        counted = self.ledger.record(measurement(f"macs at {RHOS}", way, self.networks), count)
        return lambda schedule: float(np.interp(schedule.rho or 1.0, RHOS, counted))
