"""Make the list of models anew: `python scripts/list_models.py`, after timm or an adapter has changed.

Builds every model of the installed timm without weights, which takes some minutes.
"""

import sys
import warnings
from collections import defaultdict

import timm

from exporter import bundled
from exporter.core.base.canonical_json import to_json
from exporter.core.base.records import ModelSpec
from exporter.core.vit.lvvit import LVVITS
from exporter.models.listed import LIST
from exporter.models.registry import support_of
from exporter.models.request import ModelRequest


def main() -> None:
    """Build every model and write the list."""
    accepted: dict[str, ModelSpec] = {}
    refused: dict[str, list[str]] = defaultdict(list)
    names = (*bundled.MODELS, *LVVITS, *timm.list_models())
    for index, name in enumerate(names):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # timm's, on deprecated names
            answer = support_of(ModelRequest(name))
        if answer.spec is None:
            refused[answer.reason].append(name)
        else:
            accepted[name] = answer.spec
        if index % 100 == 0:
            print(f"{index} of {len(names)}", file=sys.stderr)
    by_reason = {reason: tuple(sorted(names)) for reason, names in refused.items()}
    tables = (("accepted", accepted), ("refused", by_reason))
    lines = [f'{{"timm":{to_json(timm.__version__)}']
    for key, table in tables:
        rows = (f"{to_json(name)}:{to_json(table[name])}" for name in sorted(table))
        lines.append(f',"{key}":{{\n' + ",\n".join(rows) + "\n}")
    LIST.write_text("".join(lines) + "}\n", encoding="utf-8")
    print(f"{LIST}: {len(accepted)} of {len(names)} models can be pruned")


if __name__ == "__main__":
    main()
