"""The settings of finding units and rho together."""

from dataclasses import dataclass

from exporter.settings import Settings, option
from exporter.workflows.recipes.amount import Above0, Below1

__all__ = ["JointSettings"]


@dataclass(frozen=True, kw_only=True)
class JointSettings(Settings):
    """What units and rho are to reach together."""

    mac_reduction: Below1 | None = option(None, "Share of the whole model's MACs to save, in (0, 1).")
    max_ms: Above0 | None = option(
        None, "Largest median latency of a batch, in ms, instead of --mac-reduction."
    )

    def check(self) -> None:
        """Raise RecipeError unless exactly one limit is given."""
        one = (self.mac_reduction is None) != (self.max_ms is None)
        self.require("mac_reduction", one, "either mac_reduction or max_ms")
