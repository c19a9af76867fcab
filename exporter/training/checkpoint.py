"""Checkpoints of a training run: everything that its next epoch needs, in one file, replaced atomically."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from timm.scheduler.scheduler import Scheduler
from timm.utils import ModelEmaV3
from torch import nn
from torch.optim import Optimizer

from exporter.core.base.files import Unfinished

Score: TypeAlias = Callable[[nn.Module], float]


class RunState:
    """The state of a run that changes from epoch to epoch.

    The scheduler depends only on the epoch, so it is not stored. Only a run with the same `identity`, its
    settings and inputs as text, can be resumed. `skipped` has the reason by image that could not be read, of
    all processes; changed in place.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Scheduler,
        ema: ModelEmaV3 | None,
        *,
        identity: str,
        skipped: dict[str, str],
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.ema = ema
        self.identity, self.skipped = identity, skipped
        self.epochs_done = self.steps_done = 0
        # The best score, its epoch, and the weights after it.
        self.best: tuple[float, int, dict[str, Any]] | None = None

    @property
    def result(self) -> nn.Module:
        """The model with the averaged weights if there are any."""
        return self.model if self.ema is None else self.ema.module

    def keep_best(self, score: Score) -> None:
        """Keep the weights of the last epoch if none before it has a higher score."""
        reached = score(self.result)
        if self.best is None or reached >= self.best[0]:
            self.best = reached, self.epochs_done, deepcopy(self.result.state_dict())

    def save(self, path: Path) -> None:
        """Replace the checkpoint."""
        content = {
            "identity": self.identity,
            "epochs_done": self.epochs_done,
            "steps_done": self.steps_done,
            "skipped": self.skipped,
            "best": self.best,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
        }
        self._file(path).replace(partial(_write, content))

    def restore(self, path: Path) -> bool:
        """Load a checkpoint if it exists; return whether it did."""
        content = self._file(path).state(_read)
        if content is None:
            return False
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        if self.ema is not None:
            self.ema.load_state_dict(content["ema"])
        self.epochs_done = content["epochs_done"]
        self.steps_done = content["steps_done"]
        self.skipped.update(content["skipped"])
        self.best = content["best"]
        return True

    def _file(self, path: Path) -> Unfinished:
        return Unfinished(path, "training", self.identity)


def _write(content: object, path: Path) -> None:
    try:
        torch.save(content, path)
    # what PyTorch's own writer raises where a disk is full
    except RuntimeError as error:
        raise OSError(str(error).partition("\n")[0]) from None


def _read(path: Path) -> tuple[object, dict[str, Any]]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        return dict(content)["identity"], content
    except Exception:  # PyTorch lets through whatever a damaged pickle raises
        raise ValueError("a file that cannot be read") from None
