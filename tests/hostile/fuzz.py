"""Run random inputs through the command line: `python -m tests.hostile.fuzz --seed 1 --minutes 10`.

Every answer is to have a right exit code, one line where that is 2, and no traceback, within ten seconds of the
processor. What is refused leaves nothing behind, and nothing that is read changes. A failure is printed with the
command that repeats it. The same seed makes the same inputs.

Outputs go to relative paths in a fresh folder: no input writes to a device, or anywhere else.
"""

import argparse
import contextlib
import faulthandler
import io
import logging
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from safetensors.torch import save_file

from exporter.cli.main import main
from tests.hostile.flags import MODEL
from tests.hostile.fuzz_inputs import Input, input_of
from tests.hostile.inputs import Place, state_of
from tests.hostile.limits import Hang, limited
from tests.vits import make_images, make_model

__all__ = ["Failure", "answer", "fuzz", "made_place"]

CODES = (0, 1, 2)
# Flags of the export folders; the models of the first are read alone too.
COMPILED = (
    "--method star",
    "--method a-star",
    "--method tome --scorer pairs",
    "--method star --target openvino-int8",
)
# A call that no signal reaches ends the process after so long, with its stack; a pause of the process is not one.
DEAD_S = 1800


@dataclass(frozen=True)
class Failure:
    """An input that was answered wrongly: its index, its command, and what is wrong."""

    seed: int
    index: int
    words: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        again = f"python -m tests.hostile.fuzz --seed {self.seed} --only {self.index}"
        return f"{again}\n  star-export {shlex.join(self.words)[:500]}\n  {self.why}"


def fuzz(place: Place, seed: int, indices: Iterator[int], seconds: float) -> Iterator[Failure | None]:
    """Run inputs until the time is over; yield what is wrong with each, None for nothing."""
    end_s = time.monotonic() + seconds
    for index in indices:
        if time.monotonic() > end_s:
            return
        with tempfile.TemporaryDirectory(dir=place.work) as work:
            here, random = replace(place, work=Path(work)), Random(f"{seed}/{index}")
            made = input_of(random, here)
            with _within(here.work):
                why = answer(made, here)
        yield Failure(seed, index, made.words, why) if why else None


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    """Work in a folder: a random path of an output may be relative."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def answer(made: Input, place: Place) -> str:
    """Run a command; return what is wrong with its answer or with what it leaves, "" if nothing is."""
    read = (place.folder, place.images, *place.others)
    before, written_before = state_of(*read), state_of(place.work)
    code, why = _answered(made)
    changed = set(state_of(*read).items()) ^ set(before.items()) if code is not None else set()
    if code == 2:
        changed |= set(state_of(place.work).items()) ^ set(written_before.items())
    return why or (f"changed: {sorted(str(path) for path, _ in changed)[:4]}" if changed else "")


def _answered(made: Input) -> tuple[int | None, str]:
    """Run a command; return its exit code, None if it gave none, and what is wrong with it."""
    out, err = io.StringIO(), io.StringIO()
    faulthandler.dump_traceback_later(DEAD_S, exit=True, file=2)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), limited():
            code = main(made.words)
    except SystemExit as left:
        code = int(left.code or 0)
    except Hang as hang:
        return None, str(hang)
    except BaseException:
        return None, traceback.format_exc()
    finally:
        faulthandler.cancel_dump_traceback_later()
        logging.getLogger().handlers.clear()
    return code, _wrong(made, code, err.getvalue())


def _wrong(made: Input, code: int, err: str) -> str:
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    if code not in CODES or (made.code is not None and code != made.code):
        return f"exit code {code}, expected {made.code or CODES}: {err[-500:]}"
    if len(errors) != (code == 2):
        return f"exit code {code} with {len(errors)} lines of errors: {err[-500:]}"
    return err if "Traceback" in err else ""


def made_place(work: Path) -> Place:
    """Make weights of a tiny model, images, a calibration and export folders."""
    weights, images, calibration = work / "w.safetensors", work / "images", work / "c.safetensors"
    save_file(make_model(num_classes=2).state_dict(), weights)
    make_images(images, classes=2, each=6)
    place = Place(work / "inputs", weights, images, calibration, work / "folder", work, work)
    place.work.mkdir()
    common = f"{MODEL} --images {{images}} --quiet --out"
    _done(place, f"calibrate {common} {{calibration}}")
    others = []
    for index, own in enumerate(COMPILED):
        folder = work / f"folder{index}" if index else place.folder
        flags = f"--calibration {{calibration}} --rho 0.5 --scorer intra --rounds 0 {own}"
        _done(place, f"compile {flags} {common} {folder}")
        others += [folder] * (index > 0)
    dense, pruned = (next(place.folder.glob(f"*.{name}.onnxruntime-fp32.onnx")) for name in ("dense", "star"))
    return replace(place, dense=dense, pruned=pruned, others=tuple(others))


def _done(place: Place, line: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(place.words(line)) == 0, line


def run() -> int:
    """Fuzz by the flags; the exit code is 1 if an input was answered wrongly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--only", type=int, metavar="INDEX", help="Run this input alone.")
    options = parser.parse_args()
    # It lives as long as the process: a failing call may still hold files in it.
    place = made_place(Path(tempfile.mkdtemp(prefix="star-export-fuzz-")))
    indices = iter(range(10**9)) if options.only is None else iter([options.only])
    count, failures = 0, []
    for failure in fuzz(place, options.seed, indices, 60 * options.minutes):
        count += 1
        if failure is not None:
            failures.append(failure)
            print(failure, flush=True)
    print(f"{count} inputs, {len(failures)} answered wrongly")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(run())
