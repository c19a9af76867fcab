"""The record of a compilation."""

import json
from dataclasses import replace

from exporter.core.base.canonical_json import to_json
from exporter.core.base.records import Pair
from tests.report.reports import full_report, small_report


def test_the_share_that_is_saved() -> None:
    for pruned, saved in ((3.0, 0.25), (4.0, 0.0)):
        gmacs = {"dense": 3.5, "pruned": pruned, "scoring": 0.5, "as_it_came": 4.0}
        assert replace(full_report(), gmacs=gmacs).saved == saved


def test_it_is_plain_json() -> None:
    told = json.loads(to_json(small_report()))
    assert told["files"] == {"dense": "d.onnx", "pruned": "p.onnx"}
    assert told["parity"]["pruned"]["passed"] is True
    assert (told["schedule"]["method"], told["quality"]["accuracy"]) == ("star", None)


def test_both_models_are_what_pytorch_computes_or_the_whole_fails() -> None:
    report = small_report()
    failed = replace(report.parity.dense, passed=False)
    assert report.passed
    assert not replace(report, parity=Pair(failed, report.parity.pruned)).passed
