"""The report's own arithmetic, and its way through JSON."""

import json

from exporter.evaluation.report.record import Gmacs
from exporter.formats.canonical_json import to_json
from tests.evaluation.report.reports import small_report


def test_the_share_that_is_saved() -> None:
    assert Gmacs(4.0, 3.0, 0.5).saved == 0.25
    assert Gmacs(4.0, 4.0, 0.0).saved == 0.0


def test_it_is_plain_json() -> None:
    told = json.loads(to_json(small_report()))
    assert told["files"] == {"dense": "d.onnx", "pruned": "p.onnx"}
    assert told["parity"]["passed"] is True
    assert (told["method"], told["reduce"]) == ("star", "drop")
    assert told["accuracy"] is None
