"""Fill in the rows of tables: what was measured once, in the same conditions, is read back."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from columns import MEASURED, Numbers, flops
from place import Missing, Place, kept
from prepared import Prepared
from tables import Way

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import UserError
from exporter.core.base.files import writable_folder
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import as_it_came
from exporter.models.registry import describe, load


class Lab:
    """Measures rows; each model is loaded once, and one that cannot be loaded is named on stderr.

    `tuning` has values of `FinetuneSettings` in place of those of the rows.
    """

    def __init__(self, place: Place, tuning: Mapping[str, Any]) -> None:
        self.place, self.tuning = place, tuning
        writable_folder(place.out)
        self._conditions = place.conditions
        self._vits: dict[str, PrunableViT | None] = {}

    def numbers(self, model: str, way: Way, columns: tuple[str, ...]) -> Numbers:
        """Return our number for each column; None where weights or images are missing."""
        values: Numbers = {}
        for names, function in MEASURED.items():
            if set(names) & set(columns):
                values |= self.measured(model, way, function) or {}
        return {name: values.get(name) for name in columns}

    def measured(
        self, model: str, way: Way, function: Callable[[Prepared], Any]
    ) -> Any:
        """Return what a function measures of a model pruned in this way; None where something is missing."""
        try:
            # The multiply-adds of a whole model follow from its shape.
            by_shape = function is flops and not way.prunes
            vit = self._described(model) if by_shape else self._vit(model)
            row = Prepared(vit, self.place.request(model), way, self.place, self.tuning)
            record = {
                "measured": function.__name__,
                "weights": vit.spec if by_shape else vit.weights_sha256,
                "way": way,
                "tuning": row.tuning_settings,
                "conditions": self._conditions,
            }
            path = kept(
                self.place.out,
                record,
                ".json",
                lambda path: save_json(
                    {"found": function(row), "record": record}, path
                ),
            )
        except Missing:
            return None
        return json.loads(path.read_text(encoding="utf-8"))["found"]

    def _described(self, model: str) -> PrunableViT:
        try:
            return as_it_came(describe(self.place.request(model)))
        except UserError as error:
            print(f"{model}: {error}", file=sys.stderr)
            raise Missing from None

    def _vit(self, model: str) -> PrunableViT:
        request = self.place.request(model)
        key = f"{request.name} {request.checkpoint}"
        if key not in self._vits:
            try:
                # Papers count and time all tokens to the end, read or not.
                self._vits[key] = as_it_came(load(request, self.place.device))
            except UserError as error:
                print(f"{model}: {error}", file=sys.stderr)
                self._vits[key] = None
        vit = self._vits[key]
        if vit is None:
            raise Missing
        return vit
