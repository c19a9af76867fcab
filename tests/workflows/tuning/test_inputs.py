"""What a search cannot work with is refused in one line, before anything is measured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ImageError, RecipeError, UserError
from exporter.models.base import PrunableViT
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8
from exporter.vocabulary import Method
from exporter.workflows.progress import Silent
from exporter.workflows.recipes.amount import MacShare, Rho
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.requests import Images
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.tuning.axes import OWN, Candidate
from exporter.workflows.tuning.inputs import (
    amount_of,
    candidates_of,
    halves_of,
    ledger_of,
    targets_here,
    within_reach,
)
from exporter.workflows.tuning.networks import Network
from tests.commands import Workplace
from tests.vits import make_vit
from tests.workflows.tuning.small import FakeBench, settings


def test_a_number_is_pinned_and_other_amounts_are_refused() -> None:
    assert amount_of(resolve(Recipe())) is None
    assert amount_of(resolve(Recipe(rho=0.7))) == Rho(0.7)
    assert amount_of(resolve(Recipe(mac_reduction=0.4))) == MacShare(0.4)
    for refused in ({"rates": {2: 0.5}}, {"rates": {2: 0.5}, "rho": 0.7}, {"speedup": 1.5}):
        with pytest.raises(RecipeError, match="--weights FILE"):
            amount_of(resolve(Recipe(**refused)))
    with pytest.raises(RecipeError, match="--rounds"):
        amount_of(resolve(Recipe(rounds=0)))


def test_targets_are_those_that_run_here() -> None:
    assert {ONNXRUNTIME, ONNXRUNTIME_INT8} <= set(targets_here(settings(runtime="onnxruntime")))
    assert targets_here(settings(runtime=None, target="onnxruntime-int8")) == (ONNXRUNTIME_INT8,)
    for limits in ({"runtime": "tensorrt"}, {"runtime": "openvino", "target": "onnxruntime-fp32"}):
        with pytest.raises(RecipeError, match="one that runs here"):
            targets_here(settings(**limits))


def test_settings_pin_axes_and_have_to_go_together(tiny_vit: PrunableViT) -> None:
    networks = {OWN: Network(tiny_vit)}
    found = candidates_of(resolve(Recipe(scorer="fused", reduce="drop", rho=0.7)), networks)
    assert {(each.scorer, each.reduce, each.rho) for each in found} == {("fused", "drop", 0.7)}
    assert {each.method for each in found} == {Method.STAR, Method.A_STAR}
    with pytest.raises(RecipeError, match="settings that do not go together"):
        candidates_of(resolve(Recipe(scorer="pairs", method=Method.STAR, alpha=0.2)), networks)


def test_what_is_out_of_reach_is_left_out() -> None:
    bench: Any = FakeBench()
    near, far = Candidate(mac_reduction=0.2), Candidate(mac_reduction=0.95)
    assert within_reach(bench, [far, near], Silent()) == [near]
    with pytest.raises(RecipeError, match="or --images where"):
        within_reach(bench, [far], Silent())


@pytest.mark.parametrize(
    ("changes", "limits", "error", "message"),
    [
        ({"eval_images": None}, {}, RecipeError, "--eval-images"),
        ({}, {"max_drop": 0.5, "confident": True}, ImageError, "6 images in the final half"),
        ({"max_eval_images": 1}, {}, ImageError, "at least 2 for each class"),
    ],
)
def test_images_that_do_not_do_are_refused(
    changes: dict[str, Any],
    limits: dict[str, Any],
    error: type[UserError],
    message: str,
    workplace: Workplace,
) -> None:
    tiny_vit = make_vit(num_classes=2)
    images = replace(Images(eval_images=workplace.images), **changes)
    with pytest.raises(error, match=message):
        halves_of(images, tiny_vit, settings(**limits))
    search, final = halves_of(Images(eval_images=workplace.images), tiny_vit, settings())
    assert not {file.path for file in search.files} & {file.path for file in final.files}


def test_measurements_are_of_their_images_and_timing(workplace: Workplace, tmp_path: Path) -> None:
    search, final = halves_of(Images(eval_images=workplace.images), make_vit(num_classes=2), settings())
    job = resolve(Recipe())
    own = ledger_of(tmp_path, job, search, final)
    own.record("x", lambda: 1)
    assert ledger_of(tmp_path, job, search, final).knows("x")
    assert not ledger_of(tmp_path, job, final, search).knows("x")
    assert not ledger_of(tmp_path, resolve(Recipe(batch=3)), search, final).knows("x")
