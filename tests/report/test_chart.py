"""The picture of speed against loss: what it shows, and the same bytes each time."""

from dataclasses import replace
from io import BytesIO

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from exporter.measure.benchmark import TradeOff
from exporter.report.chart import (
    BEATEN,
    DARK,
    FRONT,
    LIGHT,
    UNPRUNED,
    trade_off_chart,
)
from tests.report.reports import trade_off


def test_the_same_points_give_the_same_bytes_whatever_the_users_settings() -> None:
    before = trade_off_chart(trade_off(), "deit")
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30}):
        assert trade_off_chart(trade_off(), "deit") == before
    assert b"matplotlib" not in before.lower()


def pixels_of(content: bytes, colour: str) -> int:
    picture = np.asarray(Image.open(BytesIO(content)).convert("RGB"))
    rgb = [round(255 * part) for part in to_rgb(colour)]
    return int((picture == rgb).all(axis=-1).sum())


def test_speed_against_loss_in_either_style() -> None:
    for style, page in ((LIGHT, "white"), (DARK, "black")):
        content = trade_off_chart(trade_off(), "deit", style)
        assert pixels_of(content, page) > 100_000
        for colour in (UNPRUNED, FRONT, BEATEN):
            assert pixels_of(content, colour) > 30


def test_a_single_point_is_drawn_whether_or_not_it_is_a_gain() -> None:
    for front, colour in ((True, FRONT), (False, BEATEN)):
        alone = replace(
            trade_off(), points=(replace(trade_off().points[0], front=front),)
        )
        assert pixels_of(trade_off_chart(alone, "deit"), colour) > 30


def test_a_trade_off_of_nothing_is_drawn() -> None:
    assert trade_off_chart(TradeOff(8, "agreement", 10, {"a": 1.0}, ()), "deit")
