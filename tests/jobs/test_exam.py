"""Images to measure on are required, and progress counts the images of all processes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.core.base.errors import ImageError, RecipeError
from exporter.core.base.progress import SILENT
from exporter.data.images import list_images
from exporter.jobs import exam
from exporter.jobs.exam import Exam, train_images, with_progress
from exporter.jobs.opened import open_recipe
from exporter.jobs.recipe import Images
from exporter.processes import Processes
from exporter.training.data import TrainBatches
from exporter.training.settings import FinetuneSettings
from tests.commands import recipe_with
from tests.shards import encoded, write_shard
from tests.vits import make_images, make_vit


def test_an_exam_needs_images_of_its_own(image_folder: Path) -> None:
    two, seven = (make_vit(num_classes=count).spec for count in (2, 7))
    with pytest.raises(RecipeError, match="--eval-images"):
        Exam(Images(images=image_folder), two, SILENT)
    assert Exam(Images(eval_images=image_folder), two, SILENT).source.class_names == {
        0: "class_0",
        1: "class_1",
    }
    with pytest.raises(ImageError, match="2 class folders"):
        Exam(Images(eval_images=image_folder), seven, SILENT)


def test_images_that_are_trained_on_are_counted(
    image_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind a link, and beside others."""
    spec, trained = make_vit(num_classes=2).spec, list_images(image_folder)
    others = make_images(tmp_path / "others")
    Exam(Images(eval_images=others), spec, SILENT).warn_of(trained)
    assert "are trained on" not in caplog.text
    (tmp_path / "link").symlink_to(image_folder)
    (others / "class_1/0.png").unlink()
    (others / "class_1").rename(tmp_path / "left out")
    (others / "class_1").symlink_to(image_folder / "class_1")
    for place, seen in ((tmp_path / "link", "6 of 6"), (others, "3 of 6")):
        Exam(Images(eval_images=place), spec, SILENT).warn_of(trained)
        assert f"{place}: {seen} images" in caplog.text


def test_training_needs_a_class_for_every_image(
    image_folder: Path, tmp_path: Path
) -> None:
    def trained_on(classes: int, place: Path) -> list[int | None]:
        variant = open_recipe(
            recipe_with(images=place), model=make_vit(num_classes=classes)
        )
        return [file.label for file in train_images(variant.network, None).files]

    assert trained_on(2, image_folder) == [0, 0, 0, 1, 1, 1]
    with pytest.raises(
        ImageError,
        match=r"class_0/0\.png \| got no class \(2 class folders .*\) \| need one of 3",
    ):
        trained_on(3, image_folder)
    shard = write_shard(tmp_path / "a.tar", {"1.png": encoded(1), "1.cls": "2"})
    with pytest.raises(
        ImageError,
        match=r"a\.tar/1\.png \| got the class 2 \| need an index from 0 below 2",
    ):
        trained_on(2, shard)


@pytest.mark.parametrize(("count", "steps"), [(1, [2, 4, 6]), (2, [4, 8, 12])])
def test_progress_counts_images(
    count: int, steps: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exam, "processes", lambda: Processes(0, count))
    images = list_images(make_images(tmp_path / "images"), num_classes=2)
    settings = replace(FinetuneSettings(), epochs=3, batch_size=2, augment="none")
    batches = TrainBatches(images, settings, make_vit().spec.preprocessing, 2)
    seen: list[Any] = []
    made = with_progress(batches, lambda done, total: seen.append((done, total)))
    assert len(list(made(0))) == 3
    assert seen == [(step, 18) for step in steps]
    list(made(2))
    assert seen[-1] == (12 + steps[-1], 18)
