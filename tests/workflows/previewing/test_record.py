"""A preview has the model's multiply-adds, the files that exist, and a guess of the time."""

from pathlib import Path

from exporter.models.registry import describe
from exporter.schedule.macs import dense_macs
from exporter.workflows.previewing.expected import Expected
from exporter.workflows.previewing.record import preview_of
from exporter.workflows.previewing.work import Work
from tests.commands import Workplace


def test_the_files_that_exist_would_be_replaced(workplace: Workplace, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    spec = describe(workplace.request).spec
    found = preview_of(spec, [Work("model", 0, 0.0)], tmp_path, ["a", "b"])
    assert (found.files, found.replaced) == (("a", "b"), ("a",))
    assert (found.model, found.method, found.target) == (spec.name, "", "")
    assert (found.gmacs_dense, found.gmacs_pruned, found.unknown) == (dense_macs(spec).gmacs, None, "")
    assert 0 < found.minutes[0] < found.minutes[1]


def test_what_pruning_leaves_is_told(workplace: Workplace, tmp_path: Path) -> None:
    spec, work = describe(workplace.request).spec, [Work("model", 0, 0.0)]
    found = preview_of(spec, work, tmp_path, (), method="star", expected=Expected(None, 1.5, "the images"))
    assert (found.method, found.gmacs_pruned, found.unknown) == ("star", 1.5, "the images")
