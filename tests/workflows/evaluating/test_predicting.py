"""Answers of several processes are put back into the order of the images, whatever was skipped."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from exporter.errors import ImageError
from exporter.evaluation.accuracy import Predictions
from exporter.processes import Processes
from exporter.workflows.evaluating import predicting
from exporter.workflows.evaluating.predicting import Answers


@dataclass
class Division:
    """Images by number, in batches of two, of which some cannot be read, shared by processes in turns."""

    total: int
    broken: frozenset[int]
    count: int

    def part(self, index: int) -> Any:
        batches = [range(start, min(start + 2, self.total)) for start in range(0, self.total, 2)]
        mine = [[at for at in batch if at not in self.broken] for batch in batches[index :: self.count]]
        read = [at for batch in mine for at in batch]
        best = np.array(read, np.int64).reshape(-1, 1) * 10
        skipped = {str(at): "torn" for at in self.broken if at // 2 % self.count == index}
        predictions = (Predictions(best, np.array(read, np.int64)),)
        return predicting._Part(predictions, tuple(map(str, read)), skipped, tuple(map(len, mine)))

    def joined(self) -> Answers[Predictions]:
        return predicting._joined([self.part(index) for index in range(self.count)])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("broken", [set(), {0}, {2, 3}, {4, 8}])
def test_the_order_is_that_of_the_images(count: int, broken: set[int]) -> None:
    answers = Division(9, frozenset(broken), count).joined()
    expected = [at for at in range(9) if at not in broken]
    (found,) = answers.found
    assert found.labels.tolist() == expected
    assert found.best[:, 0].tolist() == [10 * at for at in expected]
    assert answers.names == tuple(map(str, expected))
    assert answers.skipped == {str(at): "torn" for at in broken}


def test_each_process_takes_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    for index in range(2):
        monkeypatch.setattr(predicting, "processes", lambda index=index: Processes(index, 2))
        taken.append(list(predicting._own(range(7), 2)))  # type: ignore[arg-type]
    assert taken == [[0, 1, 4, 5], [2, 3, 6]]


def test_labels_have_to_be_known_in_all_processes_or_in_none() -> None:
    found = Predictions(np.zeros((3, 1), np.int64), np.array([4, -1, 2]))
    with pytest.raises(ImageError, match=r"b \| got no label"):
        predicting._check_alike(Answers((found,), ("a", "b", "c"), {}))
