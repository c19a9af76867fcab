"""The halves share no image, have the same classes, and follow from names and the seed alone."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from exporter.data.images import ImageFile, ImageFolder
from exporter.workflows.tuning.halves import halves

ROOT = Path("images")


def folder(counts: list[int]) -> ImageFolder:
    files = (
        ImageFile(ROOT / f"{label}" / f"{at}.png", label)
        for label, count in enumerate(counts)
        for at in range(count)
    )
    return ImageFolder(ROOT, tuple(files))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_each_class_is_halved(counts: list[int], seed: int) -> None:
    images = folder(counts)
    search, final = halves(images, seed)
    assert set(search.files) | set(final.files) == set(images.files)
    assert not set(search.files) & set(final.files)
    first, second = (Counter(file.label for file in half.files) for half in (search, final))
    assert all(first[label] - second[label] in (0, 1) for label in range(len(counts)))


def test_names_and_the_seed_alone_decide() -> None:
    images = folder([6, 7])
    backwards = ImageFolder(ROOT, images.files[::-1])
    moved = ImageFolder(
        Path("elsewhere"),
        tuple(
            ImageFile(Path("elsewhere") / file.path.relative_to(ROOT), file.label) for file in images.files
        ),
    )
    names = [file.path.name for file in halves(images, 3)[0].files]
    assert halves(images, 3) == halves(backwards, 3)
    assert [file.path.name for file in halves(moved, 3)[0].files] == names
    assert halves(images, 3) != halves(images, 4)


def test_the_first_images_of_a_half_are_of_all_classes() -> None:
    search, _ = halves(folder([200] * 5), 0)
    seen = Counter(file.label for file in search.files[:100])
    assert min(seen.values()) >= 8
