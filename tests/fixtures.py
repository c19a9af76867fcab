"""Shared fixtures. Axis names in signatures are checked while testing: wrong shapes fail where they arise."""

import gc
import inspect
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import timm  # noqa: F401
from hypothesis import settings
from jaxtyping import install_import_hook

# Imports and an export make a million objects that live on: the search for garbage is a tenth of their time.
gc.set_threshold(100_000, 50, 50)

# Each process would compile again what a module with axis names is the first to import: timm comes before them.
ROOT = Path(__file__).parent.parent
SHAPED = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "exporter").rglob("*.py"))
    if "from jaxtyping import" in path.read_text()
]
install_import_hook(SHAPED, "beartype.beartype")

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from exporter.cli.main import main  # noqa: E402
from exporter.core.lower import pipeline  # noqa: E402
from exporter.core.vit.protocol import PrunableViT  # noqa: E402
from tests.commands import Command, Outcome, Workplace  # noqa: E402
from tests.disk_cache import shared_folder  # noqa: E402
from tests.examples import SHARED_MACHINE  # noqa: E402
from tests.exports import export_once  # noqa: E402
from tests.quick_exports import make_exports_quick  # noqa: E402
from tests.vits import make_images, make_model, make_vit  # noqa: E402

# Tiny models gain nothing from a second thread, and lose to it on a busy machine.
torch.set_num_threads(1)

make_exports_quick()
export_once()

settings.register_profile("shared machine", SHARED_MACHINE)
settings.load_profile("shared machine")


def pytest_collection_finish() -> None:
    """What is there by now lives to the end: later searches for garbage leave it out."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _warnings_are_logged() -> None:
    """A command sets the level of its whole process: one that was quiet silences no later test."""
    logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture
def exported_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch export each model, though another test had it exported."""
    monkeypatch.setattr(pipeline, "to_onnx", inspect.unwrap(pipeline.to_onnx))


@pytest.fixture
def tiny_vit() -> PrunableViT:
    """A ViT of 4 blocks and 16 patches with random weights."""
    return make_vit()


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Six small photographs of noise in two class folders."""
    return make_images(tmp_path / "images")


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


@pytest.fixture(scope="session")
def workplace() -> Workplace:
    """What commands are given, at the same place in every process."""

    def make(folder: Path) -> None:
        save_file(make_model(num_classes=2).state_dict(), folder / "w.safetensors")
        make_images(folder / "images", classes=2, each=6)

    folder = shared_folder("work", make)
    return Workplace(folder, folder / "w.safetensors", folder / "images")


@pytest.fixture(scope="session")
def calibration(workplace: Workplace) -> Path:
    """The calibration of that model on those images, with the scores of both kinds."""

    def make(folder: Path) -> None:
        flags = (
            *workplace.given,
            "--out",
            folder / "c.safetensors",
        )
        assert main([str(each) for each in ("calibrate", *flags)]) == 0

    return shared_folder("calibration", make) / "c.safetensors"


def _folders(name: str, *flags: object) -> Callable[..., Path]:
    """What makes an export folder, once for each set of further flags."""

    def folder(*more: str) -> Path:
        def make(place: Path) -> None:
            words = ("compile", *flags, *more, "--out", place / "out")
            assert main([str(word) for word in words]) == 0

        return shared_folder("".join((name, *more)), make) / "out"

    return folder


@pytest.fixture(scope="session")
def compiled(workplace: Workplace, calibration: Path) -> Callable[..., Path]:
    """Export folders of that model at rho 0.5, for tests to read, one for each set of further flags."""
    given = ("--images", workplace.images, "--calibration", calibration)
    flags = ("--rho", "0.5", "--scorer", "intra", "--rounds", "0", "--json")
    return _folders("compiled", *workplace.model, *given, *flags)


@pytest.fixture(scope="session")
def exported(workplace: Workplace) -> Callable[..., Path]:
    """The same at 40 % saved, by any method."""
    given = ("--images", workplace.images)
    flags = ("--mac-reduction", "0.4", "--rounds", "0", "--json")
    return _folders("exported", *workplace.model, *given, *flags)
