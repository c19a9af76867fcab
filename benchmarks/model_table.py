"""Verify one member of every family that can be pruned, or every name. Markdown on stdout, for docs/models.md.

    python benchmarks/model_table.py
    python benchmarks/model_table.py --all

MACs are those of the smallest member. The network that runs is the same one with fewer and narrower blocks, a
smaller input and random weights. At rates of 1 it must equal the original network bit for bit. Pruned and lowered,
it must pass the parity check on ONNX Runtime, with STAR, and with a-STAR in the layouts "shrinking" and "packed".

With --all, every accepted name is built so and compared at rates of 1, and one name of those that are then the same
network is checked with STAR's rates of 0.7. The names that fail are listed.

Writes a JSON record of the parity checks of each family, or each network of --all, to --folder. Existing records
are not made again, so a run can be interrupted. Remove the folder after a change of the code.
"""

import argparse
import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from small_networks import evenly_pruned, identical, own_settings, random_images, signature, small

from exporter.evaluation.parity.reference import check
from exporter.formats.canonical_json import save_json
from exporter.lowering.pipeline import lower
from exporter.models.base import PrunableViT
from exporter.models.catalogue import FAMILIES, Family, support_of, survey
from exporter.models.networks import ModelRequest
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import dense_macs, pruned_macs
from exporter.schedule.plan import manual_schedule
from exporter.targets import ONNXRUNTIME
from exporter.vocabulary import Method

__all__ = ["main"]

RATES = (0.7, 0.49, 0.343)  # at a quarter, a half and three quarters of the depth (STAR, Table 2)
IMAGES = 8


def main(arguments: list[str] | None = None) -> int:
    """Verify each family and print its row, or verify each name; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="Only titles, or names, that contain one of these."
    )
    parser.add_argument("--all", action="store_true", help="Every accepted name, in place of the table.")
    parser.add_argument("--threads", type=int, default=1, help="Threads of PyTorch and ONNX Runtime.")
    parser.add_argument("--folder", type=Path, default=Path("build/model_table"), help="Folder of records.")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    return (_every if options.all else _table)(options.only, options.folder, options.threads)


def _table(only: Sequence[str], folder: Path, threads: int) -> int:
    print(
        "| family | smallest member | GMACs | pruned | rates of 1 | STAR | a-STAR |\n"
        "|---|---|---|---|---|---|---|"
    )
    failed = False
    for family in FAMILIES:
        if _has_one(family.title, only):
            row, passed = _row(family, folder, threads)
            print(row, flush=True)
            failed |= not passed
    return int(failed)


def _row(family: Family, folder: Path, threads: int) -> tuple[str, bool]:
    kwargs = dict(family.model_kwargs)
    spec = support_of(ModelRequest(family.member, model_kwargs=kwargs)).spec
    if spec is None:
        raise SystemExit(
            f"{family.member} cannot be pruned any more: star-export models --why {family.member}"
        )
    vit = small(family.member, kwargs)
    same = identical(vit, random_images(vit, IMAGES))
    place = folder / f"family.{re.sub(r'[^a-z0-9]+', '_', family.title.lower())}.json"
    agrees = _recorded(place, partial(_of_both_methods, vit, threads))
    dense, pruned = dense_macs(spec), pruned_macs(spec, _schedule(spec).keep)
    member = f"`{family.member}`" + "".join(f" `{key}={value}`" for key, value in kwargs.items())
    cells = (
        family.title,
        member,
        f"{dense.gmacs:.2f}",
        f"{pruned.gmacs:.2f}",
        "bit for bit" if same else "**differs**",
        *("passed" if agrees[method] else "**failed**" for method in (Method.STAR, Method.A_STAR)),
    )
    return f"| {' | '.join(cells)} |", same and all(agrees.values())


def _every(only: Sequence[str], folder: Path, threads: int) -> int:
    """Verify every accepted name that contains one of `only`; return 1 if one fails."""
    accepted = [answer.name for answer in survey() if answer.spec is not None]
    names = [name for name in accepted if _has_one(name, only)]
    networks, failed = set(), []
    for name in names:
        vit = small(name)
        networks.add(signature(vit))
        agrees = _recorded(folder / f"network.{signature(vit)}.json", partial(_evenly, name, vit, threads))
        passed = bool(agrees[Method.STAR]) and identical(vit, random_images(vit, IMAGES))
        if not passed:
            failed.append(name)
        print(f"{name}: {'passed' if passed else '**failed**'}", file=sys.stderr, flush=True)
    print(
        f"{len(names)} names, {len(networks)} networks, {len(failed)} failed: {', '.join(failed) or 'none'}"
    )
    return int(bool(failed))


def _has_one(name: str, parts: Sequence[str]) -> bool:
    return any(part in name for part in parts)


def _recorded(place: Path, verify: Callable[[], dict[str, bool | str]]) -> dict[str, bool | str]:
    """Return the record at a place, after making it if it is missing."""
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        save_json(verify(), place)
    record: dict[str, bool | str] = json.loads(place.read_text(encoding="utf-8"))
    return record


def _of_both_methods(vit: PrunableViT, threads: int) -> dict[str, bool | str]:
    def agrees(method: Method, layout: str) -> bool:
        return _agrees(PrunedViT(vit, _schedule(vit.spec, method), layout=layout), threads)

    return {
        "name": vit.spec.name,
        Method.STAR: agrees(Method.STAR, "shrinking"),
        Method.A_STAR: all(agrees(Method.A_STAR, layout) for layout in ("shrinking", "packed")),
    }


def _evenly(name: str, vit: PrunableViT, threads: int) -> dict[str, bool | str]:
    return {"name": name, Method.STAR: _agrees(evenly_pruned(vit), threads)}


def _agrees(pruned: PrunedViT, threads: int) -> bool:
    images = random_images(pruned.vit, IMAGES).numpy()
    return check(pruned, lower(pruned, ONNXRUNTIME), images, threads=threads).passed


def _schedule(spec: ModelSpec, method: Method = Method.STAR) -> Schedule:
    layers = [spec.depth * quarter // 4 + 1 for quarter in (1, 2, 3)]
    return manual_schedule(spec, dict(zip(layers, RATES, strict=True)), own_settings(spec, method))


if __name__ == "__main__":
    sys.exit(main())
