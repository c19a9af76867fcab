"""The picture of speed against loss: what it shows, and the same bytes each time."""

from dataclasses import replace
from io import BytesIO

import matplotlib as mpl
import numpy as np
from PIL import Image

from exporter.measure.benchmark import TradeOff
from exporter.report.chart import DARK, LIGHT, trade_off_chart
from tests.report.reports import trade_off


def test_the_same_points_give_the_same_bytes_whatever_the_users_settings() -> None:
    before = trade_off_chart(trade_off(), "deit")
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 30}):
        assert trade_off_chart(trade_off(), "deit") == before
    assert b"matplotlib" not in before.lower()


def test_speed_against_loss_in_either_palette() -> None:
    for palette in (LIGHT, DARK):
        picture = np.asarray(
            Image.open(BytesIO(trade_off_chart(trade_off(), "deit", palette))).convert(
                "RGB"
            )
        )
        assert tuple(picture[0, 0]) == tuple(bytes.fromhex(palette.page[1:]))
        for name in (palette.dense, palette.pruned, palette.faint):
            assert (picture == tuple(bytes.fromhex(name[1:]))).all(axis=-1).sum() > 30
    assert trade_off_chart(trade_off(), "deit") == trade_off_chart(trade_off(), "deit")


def test_a_single_point_is_drawn_whether_or_not_it_is_a_gain() -> None:
    for front, colour in ((True, LIGHT.pruned), (False, LIGHT.faint)):
        alone = replace(
            trade_off(), points=(replace(trade_off().points[0], front=front),)
        )
        picture = np.asarray(
            Image.open(BytesIO(trade_off_chart(alone, "deit"))).convert("RGB")
        )
        assert (picture == tuple(bytes.fromhex(colour[1:]))).all(axis=-1).sum() > 30


def test_a_trade_off_of_nothing_is_drawn() -> None:
    assert trade_off_chart(TradeOff(8, "agreement", 10, {"a": 1.0}, ()), "deit")
