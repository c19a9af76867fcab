"""A class map, names of classes, or the only order of the folders decide; what is not certain is refused."""

import json
import logging
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timm.utils.misc import natural_key

from exporter.core.base.errors import ImageError
from exporter.data.class_map import (
    ClassesByName,
    class_indices,
    read_class_map,
)

NUMBERS = tuple(str(index) for index in range(12))
SORTED, NATURAL = Path("sorted"), Path("natural")

# Names of folders: letters of both cases, digits and what separates words.
# A model of one logit has no class folders, hence two at least.
FOLDERS = st.lists(
    st.text("abAB012 _-.", min_size=1, max_size=6), min_size=2, max_size=12, unique=True
)


def indices(
    folders: list[str], count: int | None = None, *names: str, by: Path | None = None
) -> dict[str, int]:
    return class_indices(
        folders, len(folders) if count is None else count, names, by, subject="photos"
    )


def test_names_and_indices(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"cat": 281, "dog": 207}))
    assert (
        read_class_map(path, 1000)
        == read_class_map(path, None)
        == {"cat": 281, "dog": 207}
    )
    with pytest.raises(
        ImageError, match=r"281 for 'cat' \| need a class index from 0 below 200"
    ):
        read_class_map(path, 200)
    for wrong in (True, -1):
        path.write_text(json.dumps({"cat": wrong}))
        with pytest.raises(
            ImageError, match=rf"{wrong} for 'cat' \| need a class index from 0"
        ):
            read_class_map(path, None)


def test_a_name_that_a_map_has_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text('{"cat": 3, "dog": 5, "cat": 4}')
    with pytest.raises(ImageError, match="the key 'cat' twice"):
        read_class_map(path, 10)


@given(FOLDERS)
def test_without_names_the_order_decides_if_timm_and_torchvision_agree(
    folders: list[str],
) -> None:
    torchvisions = {name: index for index, name in enumerate(sorted(folders))}
    # timm's order of names that it takes for equal is that of a set.
    timms = {
        name: index
        for index, name in enumerate(sorted(sorted(folders), key=natural_key))
    }
    assert indices(folders, by=SORTED) == torchvisions
    assert indices(folders, by=NATURAL) == timms
    if timms == torchvisions:
        assert indices(folders) == timms
    else:
        with pytest.raises(
            ImageError, match=r"--class-map sorted .* or --class-map natural"
        ):
            indices(folders)
    assert indices(folders, len(folders) + 1) == {}


@given(FOLDERS, st.randoms(use_true_random=False), st.data())
def test_names_of_the_model_decide_in_any_order(
    folders: list[str], chance: object, data: st.DataObject
) -> None:
    names = data.draw(st.permutations(folders))
    some = data.draw(st.lists(st.sampled_from(folders), min_size=1, unique=True))
    assert indices(some, len(names), *names) == {
        name: names.index(name) for name in some
    }


@given(FOLDERS, FOLDERS)
def test_no_folder_is_left_out_and_no_class_given_twice(
    folders: list[str], names: list[str]
) -> None:
    """Whatever the names are: each folder has a class of its own, or there is one line, or there are no labels."""
    try:
        found = indices(folders, len(names), *names)
    except ImageError as error:
        assert "\n" not in str(error)
        return
    if found:
        assert set(found) == set(folders)
        assert len(set(found.values())) == len(found)
        assert set(found.values()) <= set(range(len(names)))


@pytest.mark.parametrize(
    ("folder", "index"),
    [
        ("tench, Tinca tinca", 0),
        ("tench", 0),
        ("tench, tinca tinca", 0),
        ("tench, man-eater", None),
        ("Tinca_tinca", 0),
        ("n01440764", 0),
        ("GREAT-white shark", 1),
        ("n_a", 2),
        (unicodedata.normalize("NFD", "Café"), 3),
        ("shark", None),
        ("", None),
    ],
)
def test_a_name_is_found_by_its_synonyms_and_in_other_spellings(
    folder: str, index: int | None
) -> None:
    names = ClassesByName(
        ("tench, Tinca tinca, n01440764", "great white shark, man-eater", "N/A", "café")
    )
    assert names.index_of(folder, "photos") == index


def test_a_whole_name_comes_before_a_synonym() -> None:
    """As with ImageNet's cardigans: a dog and a jacket."""
    names = ("Cardigan, Cardigan Welsh corgi", "cardigan")
    assert ClassesByName(names).index_of("cardigan", "photos") == 1
    with pytest.raises(
        ImageError,
        match=r"'CARDIGAN', a name of the classes 0, 1 \| need a name of one class",
    ):
        ClassesByName(names).index_of("CARDIGAN", "photos")
    with pytest.raises(ImageError, match="'crane', a name of the classes 0, 1"):
        indices(["crane"], 2, "crane", "crane")


def test_folders_that_are_partly_classes_are_one_line() -> None:
    with pytest.raises(ImageError) as error:
        indices(["cat", "dog", "fox", "owl"], 4, "zebra", "cat", "dog", "hen")
    assert str(error.value) == (
        "photos | got 2 folders with names of classes, 2 without ('fox', 'owl') | need names such as 'zebra', "
        "'cat', 'dog', … | --class-map FILE gives their indices, --class-map sorted or natural goes by their order"
    )
    with pytest.raises(
        ImageError,
        match="two class folders, 'hot dog' and 'hot_dog', of the class 'hot-dog'",
    ):
        indices(["hot dog", "hot_dog"], 2, "hot-dog", "cat")
    assert (
        indices(
            ["cat", "dog", "fox", "owl"], 4, "zebra", "cat", "dog", "hen", by=SORTED
        )["fox"]
        == 2
    )


def test_an_empty_folder_needs_no_name() -> None:
    found = class_indices(
        ["cat", "junk"], 2, ("dog", "cat"), empty=["junk"], subject="photos"
    )
    assert found == {"cat": 1}


@pytest.mark.parametrize("class_map", [None, SORTED])
def test_one_logit_has_no_class_for_a_folder(class_map: Path | None) -> None:
    assert class_indices(["cat"], 1, ("cat",), class_map, subject="photos") == {}


def test_what_decides_against_the_names_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert indices(["n1", "n2"], 2, "tench", "shark") == {"n1": 0, "n2": 1}
        assert indices(["shark"], 2, "tench", "shark") == {"shark": 1}
        assert (
            indices(["n1", "n2"])
            == indices(["n1", "n2"], 2, "n1", "n2")
            == {"n1": 0, "n2": 1}
        )
    assert [record.getMessage() for record in caplog.records] == [
        "photos: no class folder has the name of a class: the order of the folders decides, 'n1' is 'tench', "
        "'n2' is 'shark' "
        "(--class-map FILE gives their indices)",
        "photos: images of 1 of the model's 2 classes",
        "photos: the model has no class names: the order of the folders decides, 'n1' is class 0, 'n2' is class 1 "
        "(--class-map FILE gives their indices)",
    ]


def test_neither_names_nor_order_of_other_folders() -> None:
    assert indices(["a", "b"], 3, "x", "y", "z") == indices(["a"], 3) == {}
    with pytest.raises(ImageError, match="two orders"):
        indices(list(NUMBERS), 12, *(f"class {each}" for each in "abcdefghijkl"))
