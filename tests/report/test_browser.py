"""The page in a browser: no error in its console and no scrollbar, wide and narrow, light and dark.

Where no Chromium is on PATH these are skipped; with STAR_EXPORT_REQUIRE_BROWSER=1 they fail.
"""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from exporter.core.base.tensor_names import IMAGES, keep_name
from exporter.report.page import drawn, save_comparison, save_page
from exporter.report.record import CalibratedOn
from tests.folders import artefacts
from tests.report.reports import full_report

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
REQUIRED = os.environ.get("STAR_EXPORT_REQUIRE_BROWSER", "") not in ("", "0")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not REQUIRED, reason="no Chromium on PATH"
)

# What the page looks like from within.
PROBE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("*")].filter((each) => each.scrollWidth > each.clientWidth + 1
    && ["auto", "scroll"].includes(getComputedStyle(each).overflowX)).map((each) => each.outerHTML.slice(0, 80));
  parent.postMessage(JSON.stringify({
    width: innerWidth, scrolled: document.documentElement.scrollWidth, wide,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    broken: [...document.images].filter((each) => !each.naturalWidth).length,
    background: getComputedStyle(document.body).backgroundColor,
  }), "*");
});</script>"""

# A window is at least 500 pixels wide, a frame is as narrow as it is told. --dump-dom prints the attribute.
FRAME = """<!doctype html><style>body {{ margin: 0 }} iframe {{ border: 0 }}</style><script>
addEventListener("message", (event) => {{ document.documentElement.dataset.probe = event.data; }});</script>
<iframe src="{address}" width="{width}" height="3000"></iframe>"""


@pytest.fixture(scope="module", params=["one method", "several"])
def page(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    folder, report = tmp_path_factory.mktemp("page"), full_report()
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    heat = [np.random.default_rng(0).random((1, 16))]
    pictures = drawn(
        {IMAGES: images, keep_name(1): np.array([[0, 5], [3, 7]])},
        (4, 4),
        np.arange(16),
        heat,
    )
    report = replace(report, calibration=CalibratedOn(2, 0))
    if request.param == "several":
        made = dict.fromkeys(
            ("star", "a-star", "a-star-batch", "tome"), (report, pictures)
        )
        save_comparison(made, folder / "report.html", page="own.html")
    else:
        save_page(report, artefacts().pruned, folder / "report.html", pictures=pictures)
    with (folder / "report.html").open("a", encoding="utf-8") as file:
        file.write(PROBE)
    return folder / "report.html"


@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_runs_without_an_error(
    page: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    assert CHROMIUM, "STAR_EXPORT_REQUIRE_BROWSER is set, but no Chromium is on PATH"
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--no-first-run",
    ]
    (tmp_path / "frame.html").write_text(
        FRAME.format(address=page.as_uri(), width=width), encoding="utf-8"
    )
    flags += [
        f"--window-size={width},3000",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=2000",
    ]
    flags += [
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        f"--screenshot={tmp_path}/page.png",
    ]
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", (tmp_path / "frame.html").as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    (told,) = re.findall('data-probe="([^"]*)"', done.stdout)
    seen = json.loads(unescape(told))
    assert seen["width"] == width
    assert seen["dark"] == dark
    assert seen["broken"] == 0
    assert seen["wide"] == []
    assert seen["scrolled"] <= width
    assert seen["background"] == ("rgb(22, 27, 36)" if dark else "rgb(255, 255, 255)")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
