"""Time pruned modules in PyTorch beside the unpruned one and ToMe's published code, in turns. A Markdown table.

    python benchmarks/in_pytorch.py --models deit_small_patch16_224 --batches 1 8 32 --rounds 12
    PYTHONPATH=ToMe python benchmarks/in_pytorch.py --compiled

Where the folder of ToMe's code is on PYTHONPATH, it merges as many tokens in each layer as `method="tome"` does,
with the same weights: what both answer has to agree. Weights and images are noise: time depends on the structure
alone.
"""

import argparse
import logging
import sys
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import timm
import torch
from peers_cpu import Run, Times, timed
from torch import Tensor, nn

import exporter
from exporter.core.base.vocabulary import Method

UNPRUNED, TOME, OURS, DEFAULT = (
    "unpruned",
    "ToMe's code",
    "`prune`, ToMe",
    "`prune`, the default",
)
SHARE = 0.4
# Sums of another order, on logits of about 1.
NEAR = 1e-4


def main() -> None:
    """Time each model at each batch size; print how often as fast as the unpruned module each one is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["deit_small_patch16_224"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=12, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads.")
    parser.add_argument(
        "--compiled", action="store_true", help="Compile each by torch.compile."
    )
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(options.threads)
    print(f"| model | batch | {OURS} | {TOME} | {DEFAULT}, {SHARE:.0%} saved |")
    print("|---|---|---|---|---|")
    for name in options.models:
        modules = modules_of(name)
        for batch in options.batches:
            images = torch.randn(batch, 3, 224, 224)
            check_answers(modules, images)
            runs = {
                key: run_of(module, images, compiled=options.compiled)
                for key, module in modules.items()
            }
            times = timed(runs, options.rounds)
            cells = [speed_up(times, key) for key in (OURS, TOME, DEFAULT)]
            print(f"| {name} | {batch} | {' | '.join(cells)} |", flush=True)


def modules_of(name: str) -> dict[str, nn.Module]:
    """Return the modules by what they are, all with the same weights."""
    torch.manual_seed(0)
    model = timm.create_model(name).eval()
    vit = exporter.load_model(model, name=name)
    counts = exporter.plan(vit, exporter.Prune(method=Method.TOME, mac_reduction=SHARE))
    modules = {
        UNPRUNED: model,
        OURS: exporter.prune(model, counts),
        DEFAULT: exporter.prune(model, mac_reduction=SHARE),
    }
    try:
        patch = import_module("tome.patch")
    except ImportError as error:
        print(f"{TOME}: left out, {error}", file=sys.stderr)
        return modules
    theirs: Any = timm.create_model(name).eval()
    theirs.load_state_dict(model.state_dict())
    patch.timm(theirs)
    left = (vit.spec.num_patches, *counts.keep)
    theirs.r = [
        before - after for before, after in zip(left, counts.keep, strict=False)
    ]
    return {**modules, TOME: theirs}


def check_answers(modules: dict[str, nn.Module], images: Tensor) -> None:
    """Raise ValueError where ToMe's code answers otherwise than ours, at the same counts."""
    if TOME not in modules:
        return
    with torch.no_grad():
        distance = float((modules[TOME](images) - modules[OURS](images)).abs().max())
    print(f"{TOME} and {OURS}: logits differ by {distance:.1e}", file=sys.stderr)
    if distance > NEAR:
        raise ValueError(f"{TOME} answers otherwise, by {distance:.1e}")


def run_of(module: nn.Module, images: Tensor, *, compiled: bool) -> Run:
    """Return a run without gradients."""
    called = torch.compile(module) if compiled else module
    return torch.no_grad()(partial(called, images))


def speed_up(times: dict[str, Times], key: str) -> str:
    """Return how often as much CPU time the unpruned module takes: the median and the quartiles of the rounds."""
    if key not in times:
        return ""
    ratios = np.divide(times[UNPRUNED].cpu_s, times[key].cpu_s)
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
