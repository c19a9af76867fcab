"""Classes of two models are the same by their names, by the folders of images, or the models are not compared."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.errors import RecipeError
from exporter.core.base.records import ModelSpec, Output
from exporter.core.base.tensor_names import LOGITS
from exporter.core.base.vocabulary import OutputKind
from exporter.data.images import ImageFolder
from exporter.measure.class_order import class_order, names_on
from tests.vits import make_vit

SHAPE = make_vit().spec
MAP = Path("map.json")


def of(names: Sequence[str], count: int = 3) -> ModelSpec:
    outputs = (Output(LOGITS, OutputKind.LOGITS, len(names) or count),)
    return replace(SHAPE, outputs=outputs, class_names=tuple(names))


def order(
    first: Sequence[str], second: Sequence[str], class_map: Path | None = None
) -> tuple[int, ...]:
    return class_order([of(first), of(second)], ("first", "second"), class_map)


@given(st.data(), st.lists(st.text("abcd", min_size=1), min_size=2, unique=True))
def test_each_class_is_found_by_its_name(data: st.DataObject, names: list[str]) -> None:
    others = data.draw(st.permutations(names))
    found = order(names, others) or range(len(names))
    assert [others[index] for index in found] == names


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((), (), ()),
        (("cat", "dog"), ("cat", "dog"), ()),
        (("tench", "crane"), ("Crane, bird", "tench, Tinca tinca"), (1, 0)),
        (("n01440764", "n2"), ("b, n2", "tench, n01440764"), (1, 0)),
        # Two classes of ImageNet are called crane, and nothing else.
        (("crane", "dog", "crane"), ("crane", "dog, hound", "crane"), (0, 1, 2)),
    ],
)
def test_names_may_have_synonyms(
    first: tuple[str, ...], second: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    assert order(first, second) == expected


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("ab", "", "second | got classes without names | need classes called 'a', 'b'"),
        ("", "ab", "second | got classes called 'a', 'b' | need classes without names"),
        ("abc", "abd", "second | got classes called 'd' | need classes called 'c', as"),
        ("abb", "bab", "second | got classes called "),
    ],
)
def test_what_no_name_tells_is_refused_or_the_class_map_decides(
    first: str, second: str, message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        order(first, second)
    assert message in str(caught.value) and "--class-map" in str(caught.value)
    assert order(first, second, MAP) == ()
    assert order("ab", "ba", MAP) == (1, 0)


def test_the_images_tell_the_classes_of_the_model_without_names() -> None:
    def listed(spec: ModelSpec) -> ImageFolder:
        names = spec.class_names or ("cat", "dog", "zebra")
        return ImageFolder(Path("images"), (), dict(enumerate(names)))

    named = of(("zebra", "cat", "dog"))
    names = ("named", "nameless")
    assert class_order([named, of(())], names, None, listed) == (2, 0, 1)
    assert class_order([of(()), named], names, None, listed) == (1, 2, 0)
    assert class_order([of(()), of(())], names, None, listed) == ()
    # Two of four classes have a folder: nothing tells the others.
    with pytest.raises(RecipeError, match="classes without names"):
        class_order([of("abcd"), of((), 4)], names, None, listed)
    assert names_on(listed(of(())), of((), 4)) == ()
