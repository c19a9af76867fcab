"""Plans add up over checkpoints, what prunes patches is kept, and one attention stays."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.depth.checkpoint import load_vit, read_depth
from exporter.depth.plan import DepthPlan
from exporter.depth.predictor import Sample
from exporter.errors import ArtefactError, DepthError, OutputError
from exporter.models.networks import ModelRequest
from exporter.vocabulary import AttentionVariant
from exporter.workflows.depth.steps import apply_to, fitted, read_samples, split_for
from tests.commands import Workplace
from tests.vits import TINY

# Accuracy falls by 20 and 10 points with the shares, faster towards the end.
SAMPLES = tuple(
    Sample(a / 6, t / 6, 80 - 20 * (a / 6) ** 2 - 10 * (t / 6) ** 2) for a in range(4) for t in range(4)
)


@pytest.fixture
def request_(workplace: Workplace) -> ModelRequest:
    kwargs = {key: value for key, value in TINY.items() if key != "num_classes"}
    return ModelRequest("vit_tiny_patch16_224", workplace.checkpoint, model_kwargs=kwargs)


def test_units_go_and_the_file_says_which(request_: ModelRequest, tmp_path: Path) -> None:
    out = tmp_path / "d.safetensors"
    done = apply_to(request_, DepthPlan((2,), (3,)), out)
    assert done.gmacs_after < done.gmacs_before
    assert done.parameters_after < done.parameters_before
    found = read_depth(out)
    assert found is not None
    assert (found.plan, found.merged) == (DepthPlan((2,), (3,)), True)
    assert load_vit(ModelRequest("", out)).spec.attention_layers == (1, 3, 4)


def test_plans_add_up_and_training_form_is_merged_later(request_: ModelRequest, tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{at}.safetensors" for at in range(3))
    apply_to(request_, DepthPlan((2,), (3,)), first, unmerged=True)
    apply_to(ModelRequest("", first), DepthPlan((), (1,)), second, unmerged=True)
    apply_to(ModelRequest("", second), DepthPlan(), third)
    found = read_depth(third)
    assert found is not None
    assert (found.plan, found.merged) == (DepthPlan((2,), (1, 3)), True)
    at_once = tmp_path / "once.safetensors"
    apply_to(request_, DepthPlan((2,), (1, 3)), at_once)
    assert third.read_bytes() == at_once.read_bytes()


def test_what_does_not_fit_is_refused(request_: ModelRequest, tmp_path: Path) -> None:
    out = tmp_path / "d.safetensors"
    with pytest.raises(DepthError, match="no unit to remove"):
        apply_to(request_, DepthPlan(), out)
    with pytest.raises(DepthError, match="layer 9"):
        apply_to(request_, DepthPlan((9,)), out)
    with pytest.raises(OutputError, match=r"\.safetensors"):
        apply_to(request_, DepthPlan((2,)), tmp_path / "d.pth")
    assert not out.exists()
    apply_to(request_, DepthPlan((2,)), out)
    with pytest.raises(DepthError, match="whose layers are merged"):
        apply_to(ModelRequest("", out), DepthPlan((), (1,)), tmp_path / "e.safetensors", unmerged=True)
    with pytest.raises(DepthError, match="twice"):
        apply_to(ModelRequest("", out), DepthPlan((2,)), tmp_path / "e.safetensors")
    with pytest.raises(DepthError, match="remove, as the checkpoint has"):
        apply_to(
            ModelRequest("", out), DepthPlan((3,), (), AttentionVariant.NOSE), tmp_path / "e.safetensors"
        )


def test_the_best_split_takes_more_of_what_costs_less() -> None:
    found = split_for(SAMPLES, 6, 4)
    assert found.predictor.degree == 2
    assert (found.best.attention, found.best.activation) == (1, 3)
    assert found.best.accuracy == pytest.approx(80 - 20 / 36 - 10 / 4)
    assert [each.attention for each in found.splits] == [0, 1, 2, 3, 4]
    assert (found.predictor, found.rmse) == (fitted(SAMPLES).predictor, fitted(SAMPLES).rmse)
    assert min(found.rmse, key=found.rmse.__getitem__) == 2


def test_one_attention_stays() -> None:
    assert max(each.attention for each in split_for(SAMPLES, 6, 11).splits) == 5
    with pytest.raises(DepthError, match="0 to 11"):
        split_for(SAMPLES, 6, 12)


def test_one_attention_stays_also_where_all_would_go() -> None:
    """Where attention costs almost nothing, all of it would go."""
    free = tuple(replace(each, accuracy=80 - 9 * each.activation - each.attention) for each in SAMPLES)
    found = split_for(free, 6, 6)
    assert found.best.attention == 5


@pytest.mark.parametrize("content", [{"a": 1}, [{"attention": 2.0}], [{"attention": 0.5}], [1], "text"])
def test_other_files_are_no_samples(tmp_path: Path, content: Any) -> None:
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(ArtefactError, match="a JSON list of"):
        read_samples(tmp_path / "s.json")
    with pytest.raises(ArtefactError, match=r"none\.json"):
        read_samples(tmp_path / "none.json")
