r"""Reproduce a table or a figure of a paper: printed numbers beside ours, in the same units. Markdown on stdout.

    python benchmarks/papers/reproduce.py star-4 --images imagenet/train --eval-images imagenet/val \
        --weights checkpoints/ --device cuda --out build/reproduce

--weights has a file for each model (deit_base_patch16_224.pth, lvvit_s.pth.tar, ...); without one, timm's
pretrained weights are used. What needs missing images or weights stays blank. --stand-in digits_vit takes the
bundled model in place of every other, to see that everything runs. Results are kept in --out and read again.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import depth_tables
import star
from columns import Numbers
from figures import FIGURES, draw
from measure import Lab
from place import Place
from rich.console import Console
from rich.progress import track
from tables import COLUMNS, Row, Table

from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.errors import UserError
from exporter.training.settings import FinetuneSettings

TABLES = {**star.TABLES, **depth_tables.TABLES}
# The flags of fine-tuning.
TUNING = ("batch_size", "lr", "augment", "amp", "workers")
LEGEND = "–: not printed, or the row is the paper's alone. Blank: weights, images or samples are missing."


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print a table; return the exit code."""
    options = _parser().parse_args(argv)
    try:
        lab = Lab(from_flags(Place, options), _tuning(options))
        if options.table in FIGURES:
            path = lab.place.out / f"{options.table}.png"
            draw(options.table, lab, path, options.models)
            print(path)
            return 0
        table = TABLES[options.table]
        rows = [
            row
            for row in table.rows
            if not options.models or row.model in options.models
        ]
        tracked = track(rows, options.table, console=Console(stderr=True))
        results = [
            {} if row.way is None else lab.numbers(row.model, row.way, table.columns)
            for row in tracked
        ]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(_markdown(replace(table, rows=tuple(rows)), results, _machine(lab.place)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "table", choices=[*TABLES, *FIGURES], help="The table or the figure."
    )
    parser.add_argument(
        "--models", nargs="*", help="Only the rows of these models, by timm's names."
    )
    add_flags(parser, Place)
    add_flags(parser, FinetuneSettings, TUNING)
    return parser


def _tuning(options: argparse.Namespace) -> Mapping[str, Any]:
    settings = from_flags(FinetuneSettings, options)
    return {name: getattr(settings, name) for name in TUNING if name in options}


def _machine(place: Place) -> str:
    stand_in = f"{place.stand_in} in place of every model, " if place.stand_in else ""
    ours = f"{stand_in}PyTorch fp32 (img/s on a GPU: TF32), {place.processor}"
    return f"ours: {ours}; printed: A100, batch 128; depth: H800"


def _markdown(table: Table, results: Sequence[Numbers], machine: str) -> str:
    head = [word for name in table.columns for word in (f"{name}, printed", "ours")]
    lines = [
        f"{table.title} ({machine})",
        "",
        f"| model | {' | '.join(head)} |",
        "|---" * (len(head) + 1) + "|",
    ]
    lines += [
        f"| {_name(row)} | {' | '.join(_cells(table, row, ours))} |"
        for row, ours in zip(table.rows, results, strict=True)
    ]
    return "\n".join([*lines, "", *filter(None, (table.note, LEGEND))])


def _name(row: Row) -> str:
    return f"{row.label} ({row.why})" if row.why else row.label


def _cells(table: Table, row: Row, ours: Numbers) -> list[str]:
    cells, unknown = [], "–" if row.way is None else ""
    for at, (name, printed) in enumerate(zip(table.columns, row.printed, strict=True)):
        mine = ours.get(name)
        cells.append("–" if printed is None else f"{printed:.{table.decimals[at]}f}")
        cells.append(unknown if mine is None else f"{mine:.{COLUMNS[name]}f}")
    return cells


if __name__ == "__main__":
    sys.exit(main())
