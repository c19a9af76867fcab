"""Answers of several processes come in the order of the images."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exporter.core.base.targets import PYTORCH, RTX, TRT, Runtime
from exporter.data.images import ImageFile, ImageFolder
from exporter.jobs import predicting
from exporter.jobs.predicting import Answers
from exporter.processes import Processes


def part(mine: Sequence[int], broken: set[int]) -> Answers:
    """What a process answers of its images, which are called by their numbers."""
    read = [at for at in mine if at not in broken]
    labels = np.array(read, np.int64)
    skipped = {str(at): "torn" for at in mine if at in broken}
    return Answers((10 * labels[:, None],), labels, tuple(map(str, read)), skipped)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("broken", [set(), {0}, {2, 3}, {4, 8}])
def test_the_order_is_that_of_the_images(count: int, broken: set[int]) -> None:
    """Nine, in batches of two."""
    shares: list[Any] = [
        Processes(index, count).share(range(9), 2) for index in range(count)
    ]
    answers = predicting._joined([part(mine, broken) for mine in shares])
    expected = [at for at in range(9) if at not in broken]
    (found,) = answers.predictions
    assert found.labels.tolist() == expected
    assert found.best[:, 0].tolist() == [10 * at for at in expected]
    assert answers.names == tuple(map(str, expected))
    assert answers.skipped == {str(at): "torn" for at in broken}


@pytest.mark.parametrize(
    ("runtime", "total", "size"),
    [(PYTORCH, 3, 3), (PYTORCH, 9, 8), (TRT, 3, 8), (RTX, 3, 8)],
)
def test_a_batch_is_filled_up_to_what_there_is(
    runtime: Runtime, total: int, size: int
) -> None:
    """Only an engine, which is built for sizes of batches, is given more images than there are."""
    model = SimpleNamespace(runtime=runtime)
    source = ImageFolder(Path(), (ImageFile(Path(), None),) * total)
    assert predicting._filled([model], source, 8) == size  # type: ignore[list-item]
