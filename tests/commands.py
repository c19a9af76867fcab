"""Shared helpers for tests of the command line: the files a command left, and common arguments."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.vits import TINY

__all__ = ["Command", "Outcome", "Workplace"]


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of a refusal."""
        lines = [line for line in self.err.splitlines() if line.strip() and not line.startswith("✓")]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0]


Command = Callable[..., Outcome]


@dataclass(frozen=True)
class Workplace:
    """A checkpoint, images of its two classes, and the flags that name the model."""

    folder: Path
    checkpoint: Path
    images: Path

    @property
    def model(self) -> list[object]:
        kwargs = [f"{key}={value}" for key, value in TINY.items() if key != "num_classes"]
        return ["--model", "vit_tiny_patch16_224", "--checkpoint", self.checkpoint, "--model-kwargs", *kwargs]
