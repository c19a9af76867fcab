"""A batch that does not fit into memory is refused in one line, which says how much there is."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.errors import RecipeError
from exporter.models.base import PrunableViT
from exporter.workflows import memory
from exporter.workflows.memory import bytes_of_image, check_batches, free_bytes


def test_the_largest_batch_that_fits_is_named_and_fits(
    tiny_vit: PrunableViT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: 10**9)
    with pytest.raises(RecipeError) as caught:
        check_batches("--batch", (1, 10**6), tiny_vit.spec)
    told = re.fullmatch(
        r"--batch \| got 1000000, whose images take at least \d+\.\d GB \| need at most (\d+): 1\.0 GB are free",
        str(caught.value),
    )
    assert told is not None
    check_batches("--batch", (int(told[1]),), tiny_vit.spec)
    with pytest.raises(RecipeError):
        check_batches("--batch", (int(told[1]) + 1,), tiny_vit.spec)


def test_an_image_takes_its_pixels_and_more_with_more_tokens(tiny_vit: PrunableViT) -> None:
    spec = tiny_vit.spec
    pixels = np.zeros(spec.preprocessing.input_size, np.float32).nbytes
    assert bytes_of_image(spec.preprocessing) == pixels < bytes_of_image(spec)
    assert bytes_of_image(replace(spec, dim=2 * spec.dim)) > bytes_of_image(spec)


def test_this_machine_has_memory_and_not_without_end() -> None:
    free = free_bytes()
    assert free is None or 2**20 < free < 2**50


def test_a_container_may_have_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"memory.max": "3000", "memory.current": "1000"}
    monkeypatch.setattr(
        memory, "_number", lambda path, label="": 5 if label else int(told.get(path.name, 0)) or None
    )
    assert free_bytes() == 2000


def test_a_machine_that_does_not_say_refuses_nothing(
    tiny_vit: PrunableViT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_number", lambda *_: None)
    assert free_bytes() is None
    check_batches("--batch", (2**31,), tiny_vit.spec)
