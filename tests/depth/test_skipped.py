"""What parts of a search could not read is kept by its use."""

from exporter.depth.choose import Skipped


def test_those_of_another_part_are_added_in_place() -> None:
    training = {"a.png": "torn"}
    skipped = Skipped(training)
    skipped.update(Skipped({"b.png": "gone"}, evaluation={"a.png": "torn"}))
    assert training == {"a.png": "torn", "b.png": "gone"}
    assert skipped == Skipped(training, {"a.png": "torn"})
