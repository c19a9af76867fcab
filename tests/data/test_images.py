"""The images of a folder, their order, classes and digests."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.errors import ImageError
from exporter.data.images import (
    ImageFile,
    ImageFolder,
    dataset_sha256,
    draw,
    list_images,
    sample,
    split,
)
from exporter.data.spread import set_apart
from tests.calibration.samples import pictures


def touch(root: Path, *names: str) -> Path:
    """Write files that say their own names."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return root


def names(root: Path) -> list[str]:
    return [file.path.relative_to(root).as_posix() for file in list_images(root).files]


def test_a_flat_folder_is_sorted_and_has_no_labels(tmp_path: Path) -> None:
    touch(tmp_path, "b.PNG", "a.jpeg", "c.txt", ".hidden.png", ".cache/d.png")
    assert names(tmp_path) == ["a.jpeg", "b.PNG"]
    assert not list_images(tmp_path, num_classes=2).labelled


def test_class_folders_are_sorted_and_searched_to_the_bottom(tmp_path: Path) -> None:
    touch(tmp_path, "dog/1.png", "cat/deep/2.png", "cat/1.png")
    images = list_images(tmp_path, num_classes=2)
    assert names(tmp_path) == ["cat/1.png", "cat/deep/2.png", "dog/1.png"]
    assert [file.label for file in images.files] == [0, 0, 1]
    assert images.labelled


def test_an_empty_class_folder_keeps_its_place(tmp_path: Path) -> None:
    touch(tmp_path, "c/1.png", "a/1.png")
    (tmp_path / "b").mkdir()
    assert [file.label for file in list_images(tmp_path, num_classes=3).files] == [0, 2]


def test_a_missing_class_map_and_an_image_outside_the_folders_are_errors(
    tmp_path: Path,
) -> None:
    touch(tmp_path, "1.png")
    with pytest.raises(ImageError, match="No such file"):
        list_images(tmp_path, class_map=tmp_path / "none.json")
    (tmp_path / "map.json").write_text("{}")
    with pytest.raises(ImageError, match=r"1.png outside the class folders"):
        list_images(tmp_path, class_map=tmp_path / "map.json")


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    touch(tmp_path / "elsewhere", "1.png")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "cat").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "images")
    assert names(tmp_path / "images") == ["cat/1.png"]


def test_a_draw_stays_the_same_for_ever() -> None:
    assert draw(100, 5, "0") == [16, 31, 46, 87, 92]


def test_a_sample_keeps_the_order_and_depends_on_the_seed(tmp_path: Path) -> None:
    images = list_images(pictures(tmp_path, 30))
    some = sample(images, 10, seed=1)
    assert [file for file in images.files if file in some.files] == list(some.files)
    assert some == sample(images, 10, seed=1)
    assert some != sample(images, 10, seed=2)
    assert images == sample(images, 99, seed=1) == sample(images, None, seed=1)


def test_what_is_left_out_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    touch(
        tmp_path,
        "cat/1.png",
        "cat/1.heic",
        "dog/2.PNG",
        "dog/._2.png",
        "dog/.DS_Store",
        "LICENSE",
        "0.png",
    )
    touch(tmp_path, ".cache/1.png", "cat/1.txt", "cat/2.txt")
    (tmp_path / "fox").mkdir()
    with caplog.at_level("WARNING"):
        found = list_images(tmp_path, num_classes=3, class_map=Path("sorted"))
        assert [file.label for file in found.files] == [None, 0, 1]
        assert found.class_names == {0: "cat", 1: "dog", 2: "fox"}
        list_images(tmp_path / "cat")
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: files left out by their ending: 1 .heic, 2 .txt, 1 without ending; hidden folders and images "
        "left out: 2; class folders without an image: 1 ('fox'); images outside the class folders, which have no "
        "class: 1 ('0.png', …)",
        f"{tmp_path}/cat: files left out by their ending: 1 .heic, 2 .txt",
    ]


def test_a_whole_folder_is_not_spoken_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    touch(tmp_path, "cat/1.png", "dog/2.png")
    with caplog.at_level("WARNING"):
        list_images(tmp_path, num_classes=2, names=("dog", "cat"))
    assert not caplog.records


def test_the_hash_is_over_the_bytes_in_order(tmp_path: Path) -> None:
    files = list_images(touch(tmp_path, "a.png", "b.png")).files
    assert hashlib.sha256(b"a.pngb.png").hexdigest() == dataset_sha256(files)
    gone = ImageFile(tmp_path / "gone.png", None)
    assert dataset_sha256(files) == dataset_sha256([*files, gone])
    assert dataset_sha256(files) != dataset_sha256(files[::-1])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_each_class_is_split(counts: list[int], seed: int) -> None:
    images = numbered(counts)
    for share in (0.0, 0.1, 0.5):
        rest, apart = split(images, share, seed)
        assert set(rest.files) | set(apart.files) == set(images.files)
        assert not set(rest.files) & set(apart.files)
        assert len(apart.files) == int(share * len(images.files))
        taken = Counter(file.label for file in apart.files)
        assert all(
            abs(taken[label] - share * count) < 1.0
            for label, count in enumerate(counts)
        )


def test_a_share_is_spread_over_its_order() -> None:
    assert set_apart(range(8), 0.25) == ([0, 1, 2, 4, 5, 6], [3, 7])
    assert set_apart("abcde", 0.5) == (["a", "c", "e"], ["b", "d"])
    assert set_apart([1, 2], 0.0) == ([1, 2], [])


def test_names_and_the_seed_alone_decide_the_halves() -> None:
    images = numbered([200] * 5)
    backwards = ImageFolder(images.root, images.files[::-1])
    elsewhere = numbered([200] * 5, Path("elsewhere"))
    first, second = split(images, 0.5, 3)
    assert split(backwards, 0.5, 3)[0].files == first.files[::-1]
    assert split(images, 0.5, 4) != (first, second)
    assert [file.path.name for file in split(elsewhere, 0.5, 3)[0].files] == [
        file.path.name for file in first.files
    ]
    assert list(first.files) == sorted(first.files, key=images.files.index)


def numbered(counts: list[int], root: Path = Path("images")) -> ImageFolder:
    """Images that do not exist, so many of each class."""
    places = ((label, at) for label, count in enumerate(counts) for at in range(count))
    return ImageFolder(
        root,
        tuple(
            ImageFile(root / f"{label}" / f"{at}.png", label) for label, at in places
        ),
    )
