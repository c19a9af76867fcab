"""The student is a copy, and the teacher is the model itself, a checkpoint, or a model of the caller's."""

import logging
from pathlib import Path

import pytest
import torch

from exporter.errors import ModelError, RecipeError
from exporter.models.networks import identity_of
from exporter.models.registry import load
from exporter.workflows.finetune import models_of, teacher_request
from exporter.workflows.recipe import Recipe
from exporter.workflows.opened import open_recipe
from tests.commands import Workplace
from tests.vits import make_model, make_vit


def test_a_named_model_teaches_itself(workplace: Workplace) -> None:
    found = models_of(open_recipe(workplace.recipe()), None, None)
    assert found.student is not found.teacher
    assert found.student.weights_sha256 == found.teacher.weights_sha256
    assert found.identity is not None and found.identity.architecture == "vit_tiny_patch16_224"


def test_a_model_of_the_callers_is_copied_and_may_have_a_teacher_of_its_own(workplace: Workplace) -> None:
    adapter, job = load(workplace.request), open_recipe(Recipe())
    found = models_of(job, adapter, None)
    assert found.identity is None
    assert found.teacher is adapter and found.student is not adapter
    own = {id(each) for each in found.student.model.parameters()}
    assert not own & {id(each) for each in adapter.model.parameters()}
    other = make_vit(seed=3, num_classes=2)
    assert models_of(job, make_model(num_classes=2), other).teacher is other
    assert models_of(open_recipe(workplace.recipe()), None, other).teacher is other


def test_a_teacher_that_does_not_fit_is_refused(workplace: Workplace) -> None:
    with pytest.raises(RecipeError, match=r"teacher \| got a file beside a model"):
        models_of(open_recipe(Recipe()), make_model(), "w.pth")
    with pytest.raises(ModelError, match=r"teacher \| got 5 classes \| need 2"):
        models_of(open_recipe(workplace.recipe()), None, make_vit(num_classes=5))


def test_a_teacher_in_a_file_is_the_same_network(
    workplace: Workplace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = open_recipe(workplace.recipe())
    identity = identity_of(job.model, 2)
    assert teacher_request(job, identity, None) is job.model
    request = teacher_request(job, identity, str(tmp_path / "t.pth"))
    assert (request.name, request.checkpoint) == ("vit_tiny_patch16_224", tmp_path / "t.pth")
    torch.save(make_model(seed=2, num_classes=2).state_dict(), tmp_path / "t.pth")
    with caplog.at_level(logging.WARNING):
        assert models_of(job, None, tmp_path / "t.pth").teacher.spec.num_classes == 2
    assert caplog.text == ""
