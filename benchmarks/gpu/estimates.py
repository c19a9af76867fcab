"""Estimate dense and pruned DeiTs on GPUs, from plans that TensorRT for RTX builds without one. Markdown on stdout.

    python benchmarks/gpu/estimates.py --out build/gpu/estimates

Estimates are no measurements: see `exporter.engines.cost_model`. A JSON record for each model, way and
share goes to --out; existing ones are not built again.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

# Started by its path, a script finds its own folder alone: deits.py is a folder up.
sys.path.append(str(Path(__file__).parents[1]))

from deits import MODELS, dense, saving

from exporter.core.base.artefact import artefact_of
from exporter.core.base.files import written_beside
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.targets import RTX, TENSORRT_FP16
from exporter.core.base.vocabulary import Method
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.prune import Prune
from exporter.engines.builder import build_plan
from exporter.engines.cost_model import GPUS, estimated_ms
from exporter.engines.programs import read_programs
from exporter.engines.settings import BuildSettings
from exporter.engines.tool import tool_of

WAYS = {
    "STAR": Prune(method=Method.STAR),
    "ToMe": Prune(method=Method.TOME),
    "matching": Prune(method=Method.MATCHING),
    "matching, one merge": Prune(method=Method.MATCHING, merges=1),
}
SHARES = (0.4, 0.6)
BATCHES = (1, 8, 64, 256)
# Plans for other compute capabilities have the same steps.
SM = 80


@dataclass(frozen=True)
class Estimates:
    """What is estimated of networks: milliseconds by GPU and batch size."""

    folder: Path

    def of(self, name: str, network: PrunedViT) -> dict[str, dict[str, float]]:
        """Return the times of a network, by GPU and batch; of the record of that name, where there is one."""
        path = self.folder / f"{name}.json"
        if not path.is_file():
            with written_beside(path) as partial:
                partial.write_text(
                    json.dumps(self._built(network), indent=1), encoding="utf-8"
                )
        times: dict[str, dict[str, float]] = json.loads(
            path.read_text(encoding="utf-8")
        )
        return times

    def _built(self, network: PrunedViT) -> dict[str, dict[int, float]]:
        file = self.folder / "model.onnx"
        model = lower(network, TENSORRT_FP16)
        save_onnx(model, file)
        settings = BuildSettings(runtime=RTX.name, sm=(SM,), batches=BATCHES)
        fitting = settings.of_model(artefact_of(model))
        programs = read_programs(build_plan(tool_of(RTX), file, fitting, sm=SM))
        times: dict[str, dict[int, float]] = {gpu.name: {} for gpu in GPUS}
        for batch, (steps, _) in zip(BATCHES, programs, strict=True):
            for gpu in GPUS:
                estimate = estimated_ms(steps, gpu.sm, tf32=fitting.tf32)
                times[gpu.name][batch] = estimate[gpu.name]
        return times


def main() -> None:
    """Build what is missing, and print the table of each GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--models",
        nargs="*",
        default=list(MODELS),
        choices=MODELS,
        help="DeiTs to estimate.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/gpu/estimates"),
        help="Folder for the records.",
    )
    options = parser.parse_args()
    estimates = Estimates(options.out)
    for gpu in GPUS:
        print(f"{gpu.name}, estimated\n\n{_heads()}")
        for model in options.models:
            for line in _rows(gpu.name, model, estimates):
                print(line, flush=True)


def _heads() -> str:
    heads = " | ".join(("model", "batch", "dense, ms", *WAYS))
    return f"| {heads} |\n{'|---' * (len(WAYS) + 3)}|"


def _rows(gpu: str, model: str, estimates: Estimates) -> Iterable[str]:
    """Yield a row for each batch: the speed-ups over dense at each share of MACs saved."""
    unpruned = estimates.of(f"{model}.dense", dense(model))[gpu]
    pruned: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for way, times in pruned.items():
        for share in SHARES:
            network = saving(model, replace(WAYS[way], mac_reduction=share))
            times.append(estimates.of(f"{model}.{way}.{share:g}", network)[gpu])
    for batch, milliseconds in unpruned.items():
        cells = [model, batch, f"{milliseconds:.2f}"]
        for times in pruned.values():
            cells.append(
                " / ".join(f"{milliseconds / time[batch]:.2f}" for time in times)
            )
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
