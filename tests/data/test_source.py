"""A folder, a folder of tar files, or tar files: what is opened, and what is refused."""

import json
from pathlib import Path

import pytest

from exporter.core.base.errors import ImageError
from exporter.data.source import class_mismatch, images_at, open_source
from tests.shards import encoded, write_shard
from tests.vits import make_images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_images(tmp_path / "images", classes=2, each=3)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    (tmp_path / "shards").mkdir()
    members = [
        {
            f"{at}.png": encoded(at, side=8),
            f"{at}.cls": str(at % 2),
            f"{at}.txt": "words",
        }
        for at in range(4)
    ]
    both = ({**members[0], **members[1]}, {**members[2], **members[3]})
    return [
        write_shard(tmp_path / "shards" / f"{at}.tar", each)
        for at, each in enumerate(both)
    ]


def test_beside_class_folders_tar_files_do_not_count(folder: Path) -> None:
    (folder / "val.tar").write_bytes(b"what the folders were unpacked from")
    assert len(open_source([folder], 2).files) == 6


def test_a_few_of_a_folder_are_drawn(folder: Path) -> None:
    few = open_source([folder], 2, max_images=2, seed=1)
    assert len(few.files) == 2
    assert few.files == open_source([folder], 2, max_images=2, seed=1).files


def test_shards_are_read_in_order(shards: list[Path]) -> None:
    source = open_source(shards, 2)
    assert [source.name_of(file.path) for file in source.files] == [
        "0.tar/0.png",
        "0.tar/1.png",
        "1.tar/2.png",
        "1.tar/3.png",
    ]
    assert [file.label for file in open_source([shards[0].parent], 2).files] == [
        0,
        1,
        0,
        1,
    ]


def test_the_first_of_shards(shards: list[Path]) -> None:
    few = open_source(shards, 2, max_images=3)
    assert [file.path.name for file in few.files] == ["0.png", "1.png", "2.png"]


def test_a_class_map_names_classes_in_both(
    folder: Path, shards: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"class_0": 5, "class_1": 8, "0": 5, "1": 8}))
    for place in ([folder], shards):
        source = open_source(place, 10, class_map=path)
        assert {file.label for file in source.files} == {5, 8}
        assert set(source.class_names) == {5, 8}


def test_folders_that_are_not_the_models_classes(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ImageError,
        match=r"images: labels \| got 2 class folders \('class_0', 'class_1'\) \| need 10, one per class",
    ):
        open_source([folder], 10)
    source = open_source([folder], 10, labels=False)
    assert {file.label for file in source.files} == {None}
    assert source.class_names == {}


def test_labels_of_shards_can_be_left_out(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", {"1.png": encoded(1), "1.cls": "cat"})
    assert [file.label for file in open_source([shard], 10, labels=False).files] == [
        None
    ]


def test_paths_that_are_no_images(
    folder: Path, shards: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for places, message in (
        ([tmp_path / "none"], "none | got no such folder or tar file"),
        ([folder / "class_0" / "0.png"], "0.png | got no such folder or tar file"),
        ([folder, *shards], "images | got a folder beside others"),
        ([tmp_path / "empty"], "empty | got no image"),
    ):
        with pytest.raises(ImageError) as error:
            list(open_source(places, 2).files)
        assert message in str(error.value)


def test_labels_of_some_images_are_refused_before_the_first_is_read(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "z.png").write_bytes(encoded(1))
    with pytest.raises(
        ImageError, match=r"z\.png \| got no label \| need one, as the images before it"
    ):
        open_source([folder], 2)
    assert len(open_source([folder], 2, labels=False).files) == 7
    shard = write_shard(
        tmp_path / "a.tar", {"1.png": encoded(1), "2.png": encoded(2), "2.cls": "1"}
    )
    with pytest.raises(ImageError, match=r"2\.png \| got a label \| need none"):
        open_source([shard], 2)


def test_needed_labels_are_missed_before_the_work(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "c.tar", {"1.png": encoded(1)})
    with pytest.raises(
        ImageError, match=r"c\.tar/1\.png \| got no label \| need one folder per class"
    ):
        open_source([shard], 2, needs_labels=True)


def test_names_of_the_model_decide_in_both(folder: Path, shards: list[Path]) -> None:
    names = ("class_1", "class_0")
    for source in (
        open_source([folder], 2, names=names),
        images_at(folder, 2, names=names),
    ):
        assert [file.label for file in source.files] == [1, 1, 1, 0, 0, 0]
        assert source.class_names == {0: "class_1", 1: "class_0"}
    assert open_source(shards, 2, names=names).class_names == {
        0: "class_1",
        1: "class_0",
    }


def test_an_order_is_one_of_folders(folder: Path, shards: list[Path]) -> None:
    word = Path("natural")
    assert [file.label for file in open_source([folder], 2, class_map=word).files] == [
        0,
        0,
        0,
        1,
        1,
        1,
    ]
    for refused in (
        lambda: open_source(shards, 2, class_map=word),
        lambda: images_at(shards[0], 2, word),
    ):
        with pytest.raises(ImageError, match="natural for tar files"):
            refused()


def test_folders_that_give_no_labels_are_counted(
    folder: Path, shards: list[Path]
) -> None:
    assert (
        class_mismatch(images_at(folder, 10), 10)
        == "2 class folders ('class_0', 'class_1')"
    )
    assert (
        class_mismatch(images_at(folder, 2), 2)
        == class_mismatch(images_at(folder / "class_0", 2), 2)
        == ""
    )
    (shards[0].parent / "more").mkdir()
    assert class_mismatch(images_at(shards[0], 10), 10) == ""
