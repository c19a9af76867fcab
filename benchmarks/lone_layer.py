"""Time the dense model as it came over the one with the lone last layer, in turns. One line on stdout.

python benchmarks/lone_layer.py --model deit_small_patch16_224 --batch 8 --threads 1
"""

import argparse

from deits import MODELS, deit

from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.core.vit.spec import as_it_came
from exporter.data.batches import noise
from exporter.measure.benchmark import ratio_of, throughput


def main() -> None:
    """Lower both forms, measure them, print the ratio with its quartiles."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model",
        default="deit_small_patch16_224",
        choices=MODELS,
        help="DeiT to measure.",
    )
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=30, help="Timed rounds.")
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="CPU threads; 0 is one per physical core.",
    )
    options = parser.parse_args()
    vit = deit(options.model)
    runners = {}
    for name, network in (("as it came", as_it_came(vit)), ("lone", vit)):
        model = lower(PrunedViT(network, keep_everything(network.spec)), ONNXRUNTIME)
        runners[name] = OnnxRuntimeRunner(
            model.SerializeToString(), name=name, threads=options.threads
        )
    feed = {"images": noise(vit.spec, "float32", options.batch)}
    times = throughput(
        runners, feed, batch=options.batch, rounds=options.rounds, warmup=3
    )
    ratio = ratio_of(times["as it came"], times["lone"])
    low, high = ratio.quartiles
    print(
        f"{options.model}, batch {options.batch}: {ratio.median:.3f} × ({low:.3f} to {high:.3f})"
    )


if __name__ == "__main__":
    main()
