"""Settings of a build, and the batches of each profile."""

from dataclasses import replace

import pytest

from exporter.core.base.errors import RecipeError
from exporter.core.base.targets import TENSORRT, TENSORRT_FP16, TENSORRT_INT8
from exporter.engines.settings import BuildSettings
from tests.core.lower.graphs import artefact


def test_any_batch_falls_into_one_profile() -> None:
    profiles = BuildSettings(batches=(1, 8, 32), any_batch=True).profiles
    assert profiles == ((1, 1), (2, 8), (9, 32))
    for batch in range(1, 33):
        assert sum(low <= batch <= high for low, high in profiles) == 1


@pytest.mark.parametrize("batches", [(), (8, 1), (1, 1)])
def test_batches_that_build_nothing(batches: tuple[int, ...]) -> None:
    with pytest.raises(RecipeError) as error:
        BuildSettings(batches=batches)
    assert error.value.subject == "batches"


def test_tf32_multiplies_tokens_of_half_precision_alone() -> None:
    """Mean keys, and the tokens of an fp32 model, have more bits."""
    scored, settings = artefact(1), BuildSettings()
    by_tokens, by_keys = (
        replace(scored, schedule=replace(scored.schedule, scorer=scorer))
        for scorer in ("token-pairs", "pairs")
    )
    for target in (TENSORRT_FP16, TENSORRT_INT8):
        assert settings.of_model(replace(by_tokens, target=target)).tf32
        assert not settings.of_model(replace(by_keys, target=target)).tf32
        assert not settings.of_model(replace(scored, target=target)).tf32
    assert not settings.of_model(replace(by_tokens, target=TENSORRT)).tf32
    assert not settings.of_model(replace(artefact(), target=TENSORRT_FP16)).tf32
    assert BuildSettings(tf32=True).of_model(artefact()).tf32
