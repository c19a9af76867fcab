"""A command line in this process, and a small trained-looking model for it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from exporter.cli.main import main
from tests.vits import TINY, make_images, make_model


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


@pytest.fixture
def star_export(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a verb; flags that argparse refuses leave with code 2 as well."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


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


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("work")
    save_file(make_model(num_classes=2).state_dict(), folder / "w.safetensors")
    return Workplace(folder, folder / "w.safetensors", make_images(folder / "images", classes=2, each=6))
