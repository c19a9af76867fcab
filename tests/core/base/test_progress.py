"""A function is told what a job does."""

from exporter.core.base.progress import CallbackStages, Stages


def test_a_function_is_told_of_stages_and_their_progress() -> None:
    told: list[tuple[str, int, int | None]] = []
    stages: Stages = CallbackStages(
        lambda stage, done, total: told.append((stage, done, total))
    )
    with stages.stage("calibration") as advance:
        advance(1, 4)
    assert told == [("calibration", 0, None), ("calibration", 1, 4)]
