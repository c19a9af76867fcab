"""Verify one member of every family that can be pruned. Markdown on stdout, for docs/models.md.

    python benchmarks/model_table.py
    python benchmarks/model_table.py --all

MACs are those of the smallest member. The network that runs is the same one with fewer blocks, a smaller input and
random weights. At rates of 1 it must equal the original network bit for bit. Pruned and lowered, it must pass the
parity check on ONNX Runtime, with STAR, and with a-STAR in the layouts "shrinking" and "packed".

With --all, every accepted name is built so, but with narrow blocks, and compared at rates of 1; at rates of 0.7
one name of those that are then the same network. The names that fail are listed.
"""

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from exporter import bundled
from exporter.errors import ModelError
from exporter.evaluation.parity.check_model import check
from exporter.lowering.pipeline import lower
from exporter.models.base import PrunableViT
from exporter.models.catalogue import FAMILIES, Family, support_of, survey
from exporter.models.lvvit_adapter import LVVITS
from exporter.models.networks import ModelRequest, create, source_of
from exporter.models.registry import adapt, describe
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import dense_macs, pruned_macs
from exporter.schedule.plan import ScheduleSettings, keep_everything, manual_schedule
from exporter.targets import ONNXRUNTIME
from exporter.vocabulary import Method

__all__ = ["main"]

RATES = (0.7, 0.49, 0.343)  # at a quarter, a half and three quarters of the depth (STAR, Table 2)
SMALL = {"depth": 4, "num_classes": 10}
NARROW = {"embed_dim": 64, "num_heads": 4}
IMAGES = 8


def main(arguments: list[str] | None = None) -> int:
    """Verify each family and print its row; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="Only titles, or names, that contain one of these."
    )
    parser.add_argument("--all", action="store_true", help="Every accepted name, in place of the table.")
    parser.add_argument("--threads", type=int, default=1, help="Threads of PyTorch and ONNX Runtime.")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.all:
        return _every(options.only, options.threads)
    print(
        "| family | smallest member | GMACs | pruned | rates of 1 | STAR | a-STAR |\n"
        "|---|---|---|---|---|---|---|"
    )
    failed = False
    for family in FAMILIES:
        if _has_one(family.title, options.only):
            row, passed = _row(family, options.threads)
            print(row, flush=True)
            failed |= not passed
    return int(failed)


def _row(family: Family, threads: int) -> tuple[str, bool]:
    kwargs = dict(family.model_kwargs)
    spec = support_of(ModelRequest(family.member, model_kwargs=kwargs)).spec
    if spec is None:
        raise SystemExit(
            f"{family.member} cannot be pruned any more: star-export models --why {family.member}"
        )
    identical, star, adaptive = _verified(family.member, kwargs, _pixels(spec), threads)
    dense, pruned = dense_macs(spec), pruned_macs(spec, _schedule(spec).keep)
    member = f"`{family.member}`" + "".join(f" `{key}={value}`" for key, value in kwargs.items())
    cells = (
        family.title,
        member,
        f"{dense.gmacs:.2f}",
        f"{pruned.gmacs:.2f}",
        "bit for bit" if identical else "**differs**",
        "passed" if star else "**failed**",
        "passed" if adaptive else "**failed**",
    )
    return f"| {' | '.join(cells)} |", identical and star and adaptive


def _every(only: Sequence[str], threads: int) -> int:
    """Verify every accepted name that contains one of `only`; return 1 if one fails."""
    accepted = [answer.name for answer in survey() if answer.spec is not None]
    names = [name for name in accepted if _has_one(name, only)]
    passed: dict[str, bool] = {}
    failed = []
    for name in names:
        pixels = _pixels(describe(ModelRequest(name, num_classes=10)).spec)
        vit, images = _prepared(name, {**_narrow(name), "img_size": pixels}, pixels)
        network = f"{vit.model}{replace(vit.spec, name='')}"
        if network not in passed:
            passed[network] = _agrees(PrunedViT(vit, _even(vit.spec)), images, threads)
        if not (passed[network] and _identical(vit, images)):
            failed.append(name)
        print(f"{name}: {'**failed**' if name in failed else 'passed'}", file=sys.stderr, flush=True)
    print(f"{len(names)} names, {len(passed)} networks, {len(failed)} failed: {', '.join(failed) or 'none'}")
    return int(bool(failed))


def _has_one(name: str, parts: Sequence[str]) -> bool:
    return any(part in name for part in parts)


def _narrow(name: str) -> dict[str, int]:
    """Return the arguments of narrow blocks: width says nothing of structure."""
    return {} if name in (*LVVITS, *bundled.MODELS) else NARROW


def _even(spec: ModelSpec) -> Schedule:
    """Return STAR's schedule with 0.7 in the last three of four layers."""
    layers = range(spec.depth - 2, spec.depth + 1)
    return manual_schedule(spec, dict.fromkeys(layers, 0.7), _settings(spec))


def _verified(name: str, kwargs: dict[str, Any], pixels: int, threads: int) -> tuple[bool, bool, bool]:
    vit, images = _prepared(name, {**kwargs, "img_size": pixels}, pixels)

    def agrees(method: Method, layout: str) -> bool:
        return _agrees(PrunedViT(vit, _schedule(vit.spec, method), layout=layout), images, threads)

    layouts = ("shrinking", "packed")
    return (
        _identical(vit, images),
        agrees(Method.STAR, layouts[0]),
        all(agrees(Method.A_STAR, layout) for layout in layouts),
    )


def _prepared(name: str, kwargs: dict[str, Any], pixels: int) -> tuple[PrunableViT, torch.Tensor]:
    """Return a small network with random weights, and images for it."""
    torch.manual_seed(0)
    model = _small(name, kwargs)
    _spread(model)
    return adapt(model, name), torch.randn(IMAGES, 3, pixels, pixels)


def _identical(vit: PrunableViT, images: torch.Tensor) -> bool:
    with torch.inference_mode():
        return torch.equal(PrunedViT(vit, keep_everything(vit.spec))(images), vit.model(images))


def _agrees(pruned: PrunedViT, images: torch.Tensor, threads: int) -> bool:
    return check(pruned, lower(pruned, ONNXRUNTIME), images.numpy(), threads=threads).passed


def _small(name: str, kwargs: dict[str, Any]) -> nn.Module:
    try:
        return create(source_of(ModelRequest(name, model_kwargs={**kwargs, **SMALL})))
    except ModelError:  # the family lists its blocks one by one, so `depth` cannot be changed
        return create(source_of(ModelRequest(name, num_classes=10, model_kwargs=kwargs)))


def _pixels(spec: ModelSpec) -> int:
    """Return the input size with four patches per side."""
    return 4 * spec.preprocessing.input_size[1] // spec.grid[0]


def _schedule(spec: ModelSpec, method: Method = Method.STAR) -> Schedule:
    layers = [spec.depth * quarter // 4 + 1 for quarter in (1, 2, 3)]
    return manual_schedule(spec, dict(zip(layers, RATES, strict=True)), _settings(spec, method))


def _settings(spec: ModelSpec, method: Method = Method.STAR) -> ScheduleSettings:
    """Score by the class token, where the head reads one."""
    return ScheduleSettings("intra" if spec.num_class_tokens else "received", method=method, reduce="drop")


def _spread(model: nn.Module) -> None:
    """Initialise weights so that activations keep their scale, and patches and classes differ."""
    for name, parameter in model.named_parameters():
        if "gamma" in name:
            nn.init.constant_(parameter, 0.5)
        elif parameter.ndim in (2, 4):
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
        elif parameter.ndim > 2:
            nn.init.normal_(parameter, std=0.5)


if __name__ == "__main__":
    sys.exit(main())
