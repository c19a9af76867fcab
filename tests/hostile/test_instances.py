"""A hostile module or array ends in one line, which names what is wrong; the module stays as it is."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import exporter
from exporter.core.base.errors import UserError
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.vit.protocol import PrunableViT
from tests.exhaustive import in_turn
from tests.hostile.instances import ARRAYS, FAULTS, NETWORKS
from tests.hostile.limits import limited
from tests.vits import make_model

LONGEST = 600


def _assert_one_line(error: UserError, says: str) -> None:
    line = str(error)
    assert "\n" not in line and "Traceback" not in line and len(line) < LONGEST
    assert re.search(says, line), line


@pytest.mark.parametrize(("fault", "network"), in_turn(FAULTS, NETWORKS))
def test_a_module_is_refused_in_one_line(fault: str, network: str) -> None:
    change, says = FAULTS[fault]
    model = change(NETWORKS[network]()).eval()
    modes = [part.training for part in model.modules()]
    with pytest.raises(UserError) as refused, limited():
        exporter.load_model(model)
    _assert_one_line(refused.value, says)
    assert [part.training for part in model.modules()] == modes


@cache
def _vit() -> PrunableViT:
    return exporter.load_model(make_model())


@cache
def _dense() -> PrunedViT:
    return exporter.dense(_vit())


@cache
def _model() -> Any:
    return exporter.export(_dense())


def _bench(images: Any, folder: Path) -> None:
    path = exporter.save(_model(), folder / "dense.onnx")
    exporter.bench(path, path, images)


# Each public function that takes images in memory.
FUNCTIONS: dict[str, Callable[[Any, Path], object]] = {
    "calibrate": lambda images, _: exporter.calibrate(_vit(), images),
    "export": lambda images, _: exporter.export(_dense(), "onnxruntime-int8", images),
    "check": lambda images, _: exporter.check(_dense(), _model(), images),
    "bench": _bench,
}


@pytest.mark.ort
@pytest.mark.parametrize(("array", "function"), in_turn(ARRAYS, FUNCTIONS))
def test_images_are_refused_in_one_line(
    function: str, array: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused, limited():
        FUNCTIONS[function](ARRAYS[array](), tmp_path)
    _assert_one_line(refused.value, "images")
