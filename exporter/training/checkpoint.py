"""What an interrupted run leaves behind: everything that its next epoch needs, replaced whole."""

import pickle
from pathlib import Path
from typing import Any

import torch
from timm.scheduler.scheduler import Scheduler
from timm.utils import ModelEmaV3
from torch import nn
from torch.optim import Optimizer

from exporter.errors import ArtefactError
from exporter.files import written_beside

__all__ = ["RunState"]


class RunState:
    """The parts of a run that change from epoch to epoch.

    Args:
        model: The model that is trained.
        optimizer: Its optimizer.
        scheduler: Learning rate by epoch; a function of the epoch, so nothing of it is stored.
        ema: The averaged weights, where they are wanted.
        identity: What the run was told and reads, as text; only the same run can be resumed.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Scheduler,
        ema: ModelEmaV3 | None,
        identity: str,
    ) -> None:
        self.model, self.optimizer, self.scheduler, self.ema = model, optimizer, scheduler, ema
        self.identity = identity
        self.epochs_done = self.steps_done = 0

    def save(self, path: Path) -> None:
        """Replace the checkpoint.

        Raises:
            OutputError: The place cannot be written.
        """
        content = {
            "identity": self.identity,
            "epochs_done": self.epochs_done,
            "steps_done": self.steps_done,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
        }
        with written_beside(path) as partial:
            torch.save(content, partial)

    def restore(self, path: Path) -> bool:
        """Take over a checkpoint if there is one.

        Raises:
            ArtefactError: The file is broken, or another run's.
        """
        if not path.exists():
            return False
        content = _read(path)
        if content.get("identity") != self.identity:
            raise ArtefactError(
                str(path),
                "a checkpoint of other settings, images or versions",
                "this run's",
                "delete it to begin anew",
            )
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        if self.ema is not None:
            self.ema.load_state_dict(content["ema"])
        self.epochs_done, self.steps_done = content["epochs_done"], content["steps_done"]
        return True


def _read(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError):
        content = None
    if not isinstance(content, dict):
        raise ArtefactError(
            str(path), "a file that cannot be read", "a training checkpoint", "delete it to begin anew"
        )
    return content
