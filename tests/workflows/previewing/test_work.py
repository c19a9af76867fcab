"""The guess of a time: of what it is made, and in which direction it moves."""

from exporter.workflows.compiling.work import Work, guessed_s, speed_here


def test_the_guess_grows_with_the_work_and_shrinks_with_the_speed() -> None:
    assert speed_here() > 1e6
    little, much = [Work("parity", 1, 1e9)], [Work("parity", 1, 1e9), Work("lowering", 0, 0.0, lowered=2)]
    assert guessed_s(little, 1e9) < guessed_s(much, 1e9)
    assert guessed_s(much, 1e12) < guessed_s(much, 1e9)
    low, high = guessed_s(little, 1e9)
    assert low < high
