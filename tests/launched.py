"""Commands for the processes of a launcher, one after another: starting Python costs more than such a command.

accelerate launch --multi_gpu --num_processes 2 -m tests.launched PLAN OUT
"""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from exporter.cli.main import main
from exporter.core.base.targets import ONNXRUNTIME
from exporter.jobs.variant import Variant
from exporter.measure.benchmark import Throughput
from exporter.processes import processes
from exporter.training.finetune import _Trainer
from exporter.tuning import book, search, tune
from exporter.tuning.choice import Timed

# The command of a plan that is interrupted after its first epoch.
INTERRUPTED = "interrupted"
# There while a process times models.
TIMES = "times"
# How long: another process that did not wait would predict within it.
TIMING_S = 0.2


def obey(plan: Path, out: Path) -> None:
    """Run the commands of a plan, a JSON object of argument lists by name; what they print is kept in `out`."""
    torch.set_num_threads(1)
    for name, arguments in json.loads(plan.read_text()).items():
        told = out / f"{name}.json" if processes().main else Path("/dev/null")
        with (
            told.open("w") as file,
            redirect_stdout(file),
            pytest.MonkeyPatch.context() as patch,
        ):
            _simplified(patch, out / TIMES)
            if name == INTERRUPTED:
                _interrupted(patch)
            code = main(arguments)
        assert code == (130 if name == INTERRUPTED else 0), f"{name} exits with {code}"


def _simplified(patch: pytest.MonkeyPatch, times: Path) -> None:
    """Let `tune` search on a machine whose time is multiply-adds, and compile nothing.

    The file `times` is there while models are timed: by the main process, alone.
    """
    predict = book.predict

    def speeds(variants: Mapping[str, Variant], _: Any) -> dict[str, Timed]:
        assert processes().main, "a process times models beside the main one"
        times.touch(exist_ok=False)
        time.sleep(TIMING_S)
        times.unlink()
        timed = {}
        for name, variant in variants.items():
            ms = variant.pruned.macs.total / 1e6
            timed[name] = Timed(Throughput(2, 1e3 / ms, ms, ms, (ms,) * 5), 5)
        return timed

    def predicted(name: str, variant: Variant, images: Any) -> dict[str, Any]:
        assert not times.exists(), "a process predicts while the main one times models"
        return predict(name, variant, images)

    patch.setattr(book, "time_together", speeds)
    patch.setattr(book, "predict", predicted)
    for module in (tune, search):
        patch.setattr(module, "targets_here", lambda *_: (ONNXRUNTIME,))
    patch.setattr(tune, "compile_model", lambda *_, **__: SimpleNamespace(passed=True))


def _interrupted(patch: pytest.MonkeyPatch) -> None:
    """Interrupt training in its second epoch, in all processes."""
    epoch = _Trainer.epoch

    def once(trainer: _Trainer, batches: Any) -> float:
        if trainer.run.epochs_done:
            raise KeyboardInterrupt
        return epoch(trainer, batches)

    patch.setattr(_Trainer, "epoch", once)


if __name__ == "__main__":
    obey(Path(sys.argv[1]), Path(sys.argv[2]))
