"""The list of models says what building them says, under the release of timm that it was made with."""

import pytest
import timm
from packaging.version import Version

from exporter import bundled
from exporter.models import listed as module
from exporter.models.catalogue import support_of, survey
from exporter.models.listed import listed, model_list
from exporter.models.lvvit_adapter import LVVITS
from exporter.models.registry import ModelRequest

AGAIN = "`python scripts/list_models.py` makes the list anew"


def test_the_list_is_of_the_newest_timm() -> None:
    assert Version(timm.__version__) <= Version(model_list().timm), AGAIN


def current() -> None:
    if not model_list().is_current:
        pytest.skip(f"the list is of timm {model_list().timm}")


def test_the_list_has_every_name() -> None:
    current()
    names = [each.name for each in model_list().answers]
    assert sorted(names) == sorted({*timm.list_models(), *LVVITS, *bundled.MODELS}), AGAIN


@pytest.mark.parametrize("name", [*bundled.MODELS, "lvvit_s", "deit3_small_patch16_224", "resnet50"])
def test_the_list_says_what_building_says(name: str) -> None:
    current()
    assert listed(name) == support_of(ModelRequest(name)).answer, AGAIN


@pytest.mark.exhaustive
def test_the_list_says_what_the_survey_says() -> None:
    """The survey builds one block, so it cannot tell their number."""
    current()
    answers = {each.name: each.answer for each in survey()}
    told = {each.name: each for each in model_list().answers if each.name in answers}
    assert {name for name, each in answers.items() if each.shape} == {
        name for name, each in told.items() if each.shape
    }, AGAIN
    for name, each in answers.items():
        assert each.reason == told[name].reason, AGAIN
        for field in ("channels", "pixels", "grid", "own_head"):
            assert getattr(each.shape, field, None) == getattr(told[name].shape, field, None), AGAIN


def test_another_release_or_name_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed("deit_smal_patch16_224") is None
    monkeypatch.setattr(module, "version", lambda _: "0.4.12")
    assert listed("deit_small_patch16_224") is None
