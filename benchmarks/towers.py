"""Time towers that give an embedding and tokens, on ONNX Runtime and OpenVINO. Markdown on stdout.

    python benchmarks/towers.py --batch 8 --rounds 30 --threads 1

SigLIP's and CLIP's architectures with 196 patches, 12 blocks and the width of ViT-S have random weights: time
depends on the structure alone. The bundled cifar_vit is trained: as a tower it gives the class token, or the mean
of its patches. `--checkpoints` adds networks that `calib_data/train.py` wrote. Both runtimes, the dense
model and all ways to prune it run in turns in one process. Every lowered model must pass the parity check first.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deits import DEIT_S_ACS

from exporter import bundled
from exporter.evaluation.benchmark import Throughput, compare_speed
from exporter.evaluation.parity.check_model import check
from exporter.lowering.pipeline import lower_each
from exporter.models.base import PrunableViT
from exporter.models.networks import ModelRequest, create, source_of
from exporter.models.outputs import with_outputs
from exporter.models.registry import adapt, load
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.runtimes.choice import why_not
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.schedule.plan import Prune, keep_everything, star_schedule, tome_schedule
from exporter.targets import ONNXRUNTIME, OPENVINO, Target
from exporter.tensor_names import EMBEDDING, TOKENS
from exporter.vocabulary import Method
from exporter.workflows.measuring import Lowered, noise, timed
from exporter.workflows.recipe import Measuring

__all__ = ["main"]

SMALL = {"embed_dim": 384, "num_heads": 6}
DENSE = "dense"
TARGETS = (ONNXRUNTIME, OPENVINO)
COLUMNS = ("tower", "runtime", "way", "GMACs", "img/s", "speed-up", "quartiles", "E")


@dataclass(frozen=True)
class Tower:
    """A tower, and the scores by which its patches are dropped, beside ToMe."""

    title: str
    request: ModelRequest
    scorers: tuple[str, ...]
    trained: bool = False

    def vit(self) -> PrunableViT:
        """Return it with its outputs."""
        torch.manual_seed(0)
        whole = load(self.request) if self.trained else adapt(create(source_of(self.request)), self.title)
        return with_outputs(whole, (EMBEDDING, TOKENS))


def _cifar(**kwargs: Any) -> ModelRequest:
    return ModelRequest(bundled.CIFAR_VIT.name, model_kwargs=kwargs)


def _trained(checkpoint: Path) -> Tower:
    """Return the tower of weights whose record lies beside them, with the scores that its pooling has."""
    record = json.loads(checkpoint.with_suffix(".json").read_text(encoding="utf-8"))
    request = ModelRequest(
        record["settings"]["model"],
        checkpoint,
        num_classes=len(record["class_names"]),
        model_kwargs=record["settings"]["model_kwargs"],
    )
    scorers = ("intra",) if load(request).spec.num_class_tokens else ("received", "probe")
    return Tower(f"{checkpoint.stem}, trained", request, scorers, trained=True)


TOWERS = {
    "siglip": Tower(
        "SigLIP, ViT-S",
        ModelRequest("vit_base_patch16_siglip_224", model_kwargs=SMALL),
        ("received", "probe"),
    ),
    "clip": Tower("CLIP, ViT-S", ModelRequest("vit_base_patch16_clip_224", model_kwargs=SMALL), ("intra",)),
    "cifar": Tower("cifar_vit, class token", _cifar(), ("intra",), trained=True),
    "cifar_mean": Tower(
        "cifar_vit, mean of patches", _cifar(global_pool="avg", fc_norm=False), ("received",), trained=True
    ),
}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--towers", nargs="*", default=list(TOWERS), choices=TOWERS, help="Towers to measure."
    )
    parser.add_argument(
        "--checkpoints", nargs="*", type=Path, default=[], help="Trained networks to measure as towers too."
    )
    parser.add_argument("--rho", type=float, default=0.7, help="The lowest retention rate.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=30, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    options = parser.parse_args()
    targets = [target for target in TARGETS if not why_not(target)]
    measuring = Measuring(batch=options.batch, rounds=options.rounds, threads=options.threads)
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    towers = [*(TOWERS[name] for name in options.towers), *map(_trained, options.checkpoints)]
    for tower in towers:
        for row in _rows(tower, options.rho, targets, measuring):
            print(f"| {' | '.join(row)} |", flush=True)


def _rows(tower: Tower, rho: float, targets: list[Target], measuring: Measuring) -> Iterator[list[str]]:
    vit = tower.vit()
    images = noise(vit.spec, "float32", measuring.batch)
    schedules = _schedules(vit.spec, rho, tower.scorers)
    lowered = {
        (way, each.target.name): each
        for way, schedule in schedules.items()
        for each in _lowered(PrunedViT(vit, schedule), targets, images, measuring.threads)
    }
    print(f"{tower.title}: timing", file=sys.stderr)
    times = timed(lowered, images, measuring)
    dense = dense_macs(vit.spec)
    for target in targets:
        for way, schedule in schedules.items():
            macs = dense if way == DENSE else schedule_macs(vit.spec, schedule)
            ratio = (dense.total, macs.total)
            yield [
                *(tower.title, target.runtime, way, f"{macs.gmacs:.3f}"),
                *_speed(times[DENSE, target.name], times[way, target.name], ratio, dense_row=way == DENSE),
            ]


def _schedules(spec: ModelSpec, rho: float, scorers: tuple[str, ...]) -> dict[str, Schedule]:
    """Return the schedules by what the table calls them; rates follow from DeiT-S's ACS, stretched to the depth."""
    places = np.linspace(0, 1, spec.depth)
    acs = np.interp(places, np.linspace(0, 1, len(DEIT_S_ACS)), DEIT_S_ACS).tolist()
    settings = {scorer: Prune(scorer, reduce="drop") for scorer in scorers}
    if "received" in scorers:
        settings["received by every 8th"] = Prune("received", reduce="drop", query_stride=8)
    dropped = {f"STAR, {how}, drop": star_schedule(spec, acs, rho, each) for how, each in settings.items()}
    return {
        DENSE: keep_everything(spec),
        "ToMe": tome_schedule(spec, rho, Prune(method=Method.TOME)),
        **dropped,
    }


def _lowered(
    pruned: PrunedViT, targets: list[Target], images: np.ndarray[Any, Any], threads: int
) -> Iterator[Lowered]:
    for target, model in zip(targets, lower_each(pruned, targets), strict=True):
        report = check(pruned, model, images, threads=threads)
        if not report.passed:
            failed = [each.name for each in report.checks if not each.passed]
            raise SystemExit(f"{target.name}: parity failed: {', '.join(failed)}")
        yield Lowered(model.SerializeToString(), target)


def _speed(dense: Throughput, other: Throughput, macs: tuple[float, float], *, dense_row: bool) -> list[str]:
    found = compare_speed(dense, other, macs)
    low, high = found.quartiles
    rate = f"{other.images_per_s:.1f}"
    if dense_row:
        return [rate, "", "", ""]
    return [rate, f"{found.speedup:.2f}", f"{low:.2f} to {high:.2f}", f"{found.efficiency:.2f}"]


if __name__ == "__main__":
    main()
