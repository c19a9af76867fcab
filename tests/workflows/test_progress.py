"""A job without a progress listener runs through the same stages."""

import pytest

from exporter.workflows.progress import CallbackStages, Silent, Stages


def test_an_error_in_a_stage_comes_out() -> None:
    with pytest.raises(ValueError, match="mine"), Silent().stage("model"):
        raise ValueError("mine")


def test_a_function_is_told_of_stages_and_their_progress() -> None:
    told: list[tuple[str, int, int | None]] = []
    stages: Stages = CallbackStages(lambda stage, done, total: told.append((stage, done, total)))
    with stages.stage("calibration") as advance:
        advance(1, 4)
    assert told == [("calibration", 0, None), ("calibration", 1, 4)]
