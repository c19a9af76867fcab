"""The picture of a sweep: what it shows, and the same bytes each time."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image

from exporter.evaluation.benchmark.timing import RhoSweep, TradeOff
from exporter.evaluation.report.chart import (
    DARK,
    LIGHT,
    png_address,
    throughput_chart,
    trade_off_chart,
)
from tests.evaluation.report.reports import sweep, trade_off


def test_it_is_a_picture_with_the_colours_of_both_models() -> None:
    picture = np.asarray(Image.open(BytesIO(throughput_chart(sweep(), "deit"))).convert("RGB"))
    assert picture.shape[0] > 400 and picture.shape[1] > 800
    for colour in ((0x1C, 0x23, 0x30), (0x2F, 0x6F, 0xB5)):
        assert (picture == colour).all(axis=-1).sum() > 50


def test_the_same_sweep_gives_the_same_bytes_whatever_the_users_settings() -> None:
    before = throughput_chart(sweep(), "deit")
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30}):
        assert throughput_chart(sweep(), "deit") == before
    assert b"matplotlib" not in before.lower()


def test_a_sweep_of_nothing_and_of_one_is_drawn() -> None:
    whole = sweep()
    for points in ((), whole.points[:1]):
        assert throughput_chart(RhoSweep(8, 4.6, whole.dense, points), "deit")


def test_speed_against_loss_in_either_palette() -> None:
    for palette in (LIGHT, DARK):
        picture = np.asarray(
            Image.open(BytesIO(trade_off_chart(trade_off(), "deit", palette))).convert("RGB")
        )
        assert tuple(picture[0, 0]) == tuple(bytes.fromhex(palette.page[1:]))
        for name in (palette.dense, palette.pruned, palette.faint):
            assert (picture == tuple(bytes.fromhex(name[1:]))).all(axis=-1).sum() > 30
    assert trade_off_chart(trade_off(), "deit") == trade_off_chart(trade_off(), "deit")


def test_a_single_point_is_drawn_whether_or_not_it_is_a_gain() -> None:
    for front, colour in ((True, LIGHT.pruned), (False, LIGHT.faint)):
        alone = replace(trade_off(), points=(replace(trade_off().points[0], front=front),))
        picture = np.asarray(Image.open(BytesIO(trade_off_chart(alone, "deit"))).convert("RGB"))
        assert (picture == tuple(bytes.fromhex(colour[1:]))).all(axis=-1).sum() > 30


def test_a_trade_off_of_nothing_is_drawn() -> None:
    assert trade_off_chart(TradeOff(8, "agreement", 10, {"a": 1.0}, ()), "deit")


def test_the_address_holds_the_picture(tmp_path: Path) -> None:
    assert png_address(b"abc") == "data:image/png;base64,YWJj"
