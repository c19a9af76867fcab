"""The digits that bundled models were trained and measured on, written once."""

import runpy
from pathlib import Path

from exporter.core.base.files import sha256_of
from tests.disk_cache import shared_folder

SCRIPT = Path(__file__).parent.parent / "calib_data/digits.py"


def digits(name: str = "digits") -> Path:
    """The folder of a set, with `train` and `held_out`, for tests to read."""
    script = runpy.run_path(str(SCRIPT))

    def make(folder: Path) -> None:
        script["write_digits"](folder / "set", script["SETS"][name])

    return shared_folder(f"{name} {sha256_of(SCRIPT)[:16]}", make) / "set"
