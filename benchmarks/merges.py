"""Time a model that merges in few layers, the default, beside the same with merges in seven. A Markdown table.

What choosing and merging still costs is the time over that of a model which takes slices of as many tokens instead.

    python benchmarks/merges.py --targets openvino-int8 onnxruntime-int8 --mac-reductions 0.4 0.6 --threads 1

Both save the same share of the multiply-adds; they and the unpruned model run in turns. Weights and images are
noise: time depends on the structure alone.
"""

import argparse
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from deits import MODELS, deit

from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.targets import (
    ONNXRUNTIME_INT8,
    OPENVINO_INT8,
    TARGETS,
    target_named,
)
from exporter.core.base.vocabulary import InputKind
from exporter.core.lower.instrumented import sliced_model
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything, schedule_of
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.runners import runner_here
from exporter.data.batches import noise
from exporter.measure.benchmark import Ratio, ratio_of, throughput

# Any rate: it is scaled until the share is saved.
SEVEN = dict.fromkeys(range(1, 8), 0.9)
DENSE, FEW, MANY, SLICED = "unpruned", "few", "seven", "sliced"
RANGE_IMAGES = 16


def main() -> None:
    """Measure each target and share at each batch size, and print a row of it."""
    options = _options()
    vit = deit(options.model)
    ranges = noise(vit.spec, InputKind.FLOAT32, RANGE_IMAGES)
    heads = (
        "target",
        "saved",
        "batch",
        "few over unpruned",
        "seven over unpruned",
        "few over seven",
        "slices over few",
    )
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for name in options.targets:
        target = target_named(name)
        for share in options.mac_reductions:
            prunes = {
                FEW: Prune(mac_reduction=share),
                MANY: Prune(mac_reduction=share, rates=SEVEN),
            }
            schedules = {DENSE: keep_everything(vit.spec)} | {
                role: schedule_of(resolve(prune), vit.spec, None)
                for role, prune in prunes.items()
            }
            with TemporaryDirectory() as folder, ExitStack() as stack:
                models = {
                    role: lower(PrunedViT(vit, schedule), target, images=ranges)
                    for role, schedule in schedules.items()
                }
                models[SLICED] = sliced_model(models[FEW])
                runners = {}
                for role, model in models.items():
                    path = Path(folder) / f"{role}.onnx"
                    save_onnx(model, path)
                    runner = runner_here(path, target, options.threads)
                    runners[role] = stack.enter_context(runner)
                for batch in options.batches:
                    feed = {"images": noise(vit.spec, InputKind.FLOAT32, batch)}
                    times = throughput(
                        runners, feed, batch=batch, rounds=options.rounds
                    )
                    ratios = (
                        ratio_of(times[DENSE], times[FEW]),
                        ratio_of(times[DENSE], times[MANY]),
                        ratio_of(times[MANY], times[FEW]),
                        ratio_of(times[FEW], times[SLICED]),
                    )
                    cells = (name, f"{share:.0%}", str(batch), *map(_words, ratios))
                    print(f"| {' | '.join(cells)} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    names = [ONNXRUNTIME_INT8.name, OPENVINO_INT8.name]
    add("--model", default="deit_small_patch16_224", choices=MODELS)
    add("--targets", nargs="+", default=names, choices=[*TARGETS])
    add("--mac-reductions", type=float, nargs="+", default=[0.4, 0.6])
    add("--batches", type=int, nargs="+", default=[1, 8])
    add("--rounds", type=int, default=40, help="Timed rounds.")
    add("--threads", type=int, default=1, help="CPU threads.")
    return parser.parse_args()


def _words(ratio: Ratio) -> str:
    low, high = ratio.quartiles
    return f"{ratio.median:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
