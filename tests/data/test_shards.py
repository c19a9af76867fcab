"""Images of tar files are listed in order, with the label beside them; a torn file is refused, not cut short."""

import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.errors import ImageError
from exporter.core.base.records import Preprocessing
from exporter.core.base.vocabulary import CropMode, Interpolation
from exporter.data.shards import ANY_INDEX, Labels, list_shards
from tests.shards import encoded, write_shard

SMALL = Preprocessing(
    (3, 8, 8), Interpolation.BILINEAR, (0.5,) * 3, (0.5,) * 3, 1.0, CropMode.SQUASH
)


def labelled(path: Path, known: Labels | None = ANY_INDEX) -> list[int | None]:
    return [file.label for file in list_shards([path], known).files]


def labels(path: Path, **index: int) -> list[int | None]:
    return labelled(path, Labels(index=index or None))


def test_an_image_and_its_label_stand_side_by_side(tmp_path: Path) -> None:
    members = {
        "dir/0001.JPEG": encoded(1, "JPEG"),
        "dir/0001.cls": "7\n",
        "dir/0002.cls": "3",
        "dir/0002.png": encoded(2),
        "dir/0002.txt": "a caption",
        "0003.json": "{}",
    }
    one, two = list_shards([write_shard(tmp_path / "a.tar", members)]).files
    assert [(file.path, file.label) for file in (one, two)] == [
        (tmp_path / "a.tar/dir/0001.JPEG", 7),
        (tmp_path / "a.tar/dir/0002.png", 3),
    ]
    assert one.read() == members["dir/0001.JPEG"]


@pytest.mark.parametrize(
    "told",
    [
        "4",
        '{"label": 4}',
        '{"cls": "4"}',
        '{"width": 5, "class": 4}',
        '{"class": "a group", "label": 4}',
        '{"label": null, "class": 4}',
    ],
)
def test_a_label_may_be_json(tmp_path: Path, told: str) -> None:
    shard = write_shard(
        tmp_path / "a.tar", {"1.jpg": encoded(1, "JPEG"), "1.json": told}
    )
    assert labels(shard) == [4]


@pytest.mark.parametrize("content", ["5", '{"label": "cat"}', '{"label": 99}', "{"])
def test_of_several_labels_the_first_decides(tmp_path: Path, content: str) -> None:
    members = {"1.png": encoded(1), "1.cls": "4", "1.json": content}
    shard = write_shard(tmp_path / "a.tar", members)
    known = Labels(6, ("a", "b", "c", "d", "cat", "dog"))
    assert labelled(shard, known) == [4]


def test_without_a_label_it_is_unknown(tmp_path: Path) -> None:
    members = {
        "1.png": encoded(1),
        "2.png": encoded(2),
        "2.json": json.dumps({"url": "x"}),
        "3.cls": "1",
    }
    shard = write_shard(tmp_path / "a.tar", members)
    assert labels(shard) == [None, None]
    named = write_shard(tmp_path / "b.tar", {"1.png": encoded(1), "1.cls": "cat"})
    assert labelled(named, None) == [None]


def test_a_class_map_gives_names_their_index(tmp_path: Path) -> None:
    members = {
        "1.png": encoded(1),
        "1.cls": "cat",
        "2.png": encoded(2),
        "2.json": '{"label": 5}',
    }
    shard = write_shard(tmp_path / "a.tar", members)
    assert labels(shard, **{"cat": 281, "5": 6}) == [281, 6]
    with pytest.raises(
        ImageError,
        match=r"a.tar/1.png \| got the class 'cat' \| need one that --class-map",
    ):
        labels(shard, dog=1)


@pytest.mark.parametrize(
    "told", ["cat", "", "1.5", '{"label": 1.5}', '{"label": true}', '{"label": []}']
)
def test_a_label_that_is_no_index(tmp_path: Path, told: str) -> None:
    ending = "json" if told.startswith("{") else "cls"
    shard = write_shard(tmp_path / "a.tar", {"1.png": encoded(1), f"1.{ending}": told})
    with pytest.raises(
        ImageError, match=r"a.tar/1.png \| got the class .* \| need a class index"
    ):
        labels(shard)


def test_json_that_is_none(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", {"1.png": encoded(1), "1.json": "{"})
    with pytest.raises(ImageError, match="no JSON"):
        labels(shard)


def torn(path: Path, how: str) -> Path:
    raw = bytearray(
        write_shard(
            path, {f"{number}.png": encoded(number, side=8) for number in range(3)}
        ).read_bytes()
    )
    # where the second header starts
    at = 512 + 512 * -(-len(encoded(0, side=8)) // 512)
    if how == "header":
        raw[at : at + 200] = bytes(range(200))
    path.write_bytes(
        {"text": b"no tar file", "empty": b"", "cut": bytes(raw[: at + 600])}.get(
            how, bytes(raw)
        )
    )
    return path


@pytest.mark.parametrize("how", ["text", "empty", "cut", "header"])
def test_a_torn_shard_is_refused(tmp_path: Path, how: str) -> None:
    """`tarfile` alone would end at the broken header, and count fewer images."""
    with pytest.raises(ImageError, match=r"a\.tar \| got no whole tar file") as error:
        list_shards([torn(tmp_path / "a.tar", how)])
    assert "\n" not in str(error.value)


def test_a_shard_without_the_end_mark_is_whole(tmp_path: Path) -> None:
    """Some programs leave it out; what is there ends where a member ends."""
    path = write_shard(tmp_path / "a.tar", {"1.png": encoded(1)})
    path.write_bytes(path.read_bytes()[: 512 + 512 * -(-len(encoded(1)) // 512)])
    assert labels(path) == [None]


def test_a_missing_shard(tmp_path: Path) -> None:
    with pytest.raises(
        ImageError, match=r"none\.tar \| got no whole tar file \(No such file"
    ):
        labels(tmp_path / "none.tar")


def test_images_are_read_by_their_places_in_any_order(tmp_path: Path) -> None:
    members = {f"d/{index}.png": encoded(index) for index in range(4)}
    told = {f"d/{index}.cls": str(index) for index in range(4)}
    shards = [
        write_shard(tmp_path / name, dict(sorted({**members, **told}.items())))
        for name in ("a.tar", "b.tar")
    ]
    listed = list_shards(shards)
    assert [file.label for file in listed.files] == [*range(4)] * 2
    for file in reversed(listed.files):
        assert file.read() == members[f"d/{file.path.name}"]
    assert listed.root == tmp_path
    assert listed.name_of(listed.files[0].path) == "a.tar/d/0.png"


def test_places_need_whole_uncompressed_files_with_images(tmp_path: Path) -> None:
    members = {"1.png": encoded(1), "2.png": encoded(2)}
    packed = write_shard(tmp_path / "a.tar.gz", members, "w:gz")
    with pytest.raises(
        ImageError, match=r"a\.tar\.gz \| got a compressed tar file .* gunzip"
    ):
        list_shards([packed])
    disguised = packed.rename(tmp_path / "b.tar")
    with pytest.raises(ImageError, match=r"b\.tar \| got a compressed tar file"):
        list_shards([disguised])
    with pytest.raises(ImageError, match=r"c\.tar \| got no image"):
        list_shards([write_shard(tmp_path / "c.tar", {"1.cls": "3"})])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("a", "b.1", "b.2", "c")),
            st.sampled_from(("jpg", "seg.png", "PNG", "txt")),
        ),
        max_size=9,
        unique=True,
    )
)
def test_no_member_is_left_out_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, parts: list[tuple[str, str]]
) -> None:
    """Whatever the names: listed, or counted in one line."""
    caplog.clear()
    shard = write_shard(
        tmp_path / "a.tar", {f"{key}.{ending}": b"0" for key, ending in parts}
    )
    with caplog.at_level(logging.WARNING):
        try:
            found = len(list_shards([shard], None).files)
        except ImageError:
            return
    said = caplog.records[0].getMessage() if caplog.records else ""
    images = [name for name in parts if name[1] != "txt"]
    left = int(said.partition("first dot: ")[2].partition(",")[0] or 0)
    assert found + left == len(images)
    texts = len(parts) - len(images)
    assert (f"left out by their ending: {texts} .txt" in said) == bool(texts)


def test_what_is_left_out_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    members = {
        "1.jpg": encoded(1),
        "1.mask.png": encoded(1),
        "1.png": encoded(1),
        "1.cls": "0",
        "2.heic": b"",
        "3.txt": "",
        "4.png": encoded(4),
        ".5.png": b"",
    }
    shard = write_shard(tmp_path / "a.tar", members)
    with caplog.at_level(logging.WARNING):
        assert [file.path.name for file in list_shards([shard]).files] == [
            "1.jpg",
            "4.png",
        ]
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{shard}: files left out by their ending: 1 .heic, 1 .txt; hidden folders and images left out: 1; "
        "images left out that are not their key's, the name up to its first dot: 2, the first 1.mask.png; "
        "images without a label: 1 of 2"
    )


def test_labels_are_below_the_number_of_classes(tmp_path: Path) -> None:
    shard = write_shard(
        tmp_path / "a.tar",
        {"1.png": encoded(1), "1.cls": "1", "2.png": encoded(2), "2.cls": "2"},
    )
    assert [file.label for file in list_shards([shard], Labels(3)).files] == [1, 2]
    with pytest.raises(ImageError) as error:
        list_shards([shard], Labels(2))
    assert str(error.value).endswith(
        "a.tar/2.png | got the class 2 | need an index from 0 below 2 | labels counted from 1? "
        "--class-map FILE maps them"
    )
    minus = write_shard(tmp_path / "b.tar", {"1.png": encoded(1), "1.cls": "-1"})
    with pytest.raises(
        ImageError,
        match=r"got the class -1 \| need an index from 0 below 2 \| --class-map",
    ):
        list_shards([minus], Labels(2))


def test_the_models_names_are_labels_too(tmp_path: Path) -> None:
    members = {
        "1.png": encoded(1),
        "1.cls": "Hot dog",
        "2.png": encoded(2),
        "2.cls": "0",
    }
    shard = write_shard(tmp_path / "a.tar", members)
    known = Labels(2, ("cat", "hot_dog"))
    assert labelled(shard, known) == [1, 0]
    assert list_shards([shard], known).class_names == {0: "cat", 1: "hot_dog"}
    with pytest.raises(
        ImageError,
        match=r"the class 'Hot dog' \| need a class index, or the model's name",
    ):
        list_shards([shard], Labels(2, ("cat", "dog")))
    with pytest.raises(
        ImageError, match=r"the class '0', the name of class 1 and the index of another"
    ):
        list_shards([shard], Labels(2, ("hot dog", "0")))
