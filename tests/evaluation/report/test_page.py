"""The page stands alone, says what the report says, and lets no name become markup."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.errors import OutputError
from exporter.evaluation.accuracy import Accuracy
from exporter.evaluation.benchmark.points import RhoSweep
from exporter.evaluation.benchmark.timing import summary
from exporter.evaluation.parity import explain
from exporter.evaluation.report.page import save_page
from exporter.records import Pair
from tests.evaluation.report.reports import small_report


def test_it_says_what_the_report_says(tmp_path: Path) -> None:
    report = small_report()
    save_page(report, [], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;vit&gt;" in page and "<vit>" not in page
    assert "PASSED: shipped against reference, 2 images" in page
    assert len(re.findall("PASSED: ", page)) == 2
    assert "the other patches: drop;" in page
    for check in explain(report.parity)[3:]:
        assert check.split(":")[0] in page


def test_the_overlap_of_a_calibrations_halves_is_shown_where_there_is_one(tmp_path: Path) -> None:
    report, pages = small_report(), []
    shares = tuple(0.6123 for _ in report.schedule.rates)
    for each in (report, replace(report, calibration_overlap=shares)):
        save_page(each, [], tmp_path / "report.html")
        pages.append((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [page.count("<td>0.61</td>") for page in pages] == [0, len(shares)]
    assert ["overlap of halves" in page for page in pages] == [False, True]


def test_it_needs_nothing_beside_it(tmp_path: Path) -> None:
    sweep = RhoSweep(8, 4.0, summary(8, np.full(5, 2.0)), ())
    chart = "data:image/png;base64,AAAA"
    save_page(replace(small_report(), sweep=sweep), [], tmp_path / "report.html", chart)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert chart in page
    addresses = re.findall(r"""(?:src|href)=["']([^"']*)""", page)
    assert chart in addresses
    for address in addresses:
        assert address.startswith(("data:", "#"))


def test_the_interval_stands_under_top_1(tmp_path: Path) -> None:
    dense, pruned = (Accuracy.of(top1_hits=hits, top5_hits=100, images=100) for hits in (90, 85))
    save_page(replace(small_report(), accuracy=Pair(dense, pruned)), [], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.index("<td>top-1</td>") < page.index("95 % interval of top-1") < page.index("<td>top-5</td>")
    for each in (dense, pruned):
        low, high = each.interval
        assert f"{100 * low:.2f} to {100 * high:.2f} %" in page


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        save_page(small_report(), [], tmp_path / "file" / "report.html")
