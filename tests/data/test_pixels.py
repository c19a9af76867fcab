"""The pixels of image files and of arrays."""

import logging
import math
import re
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms import Compose, Normalize, ToTensor

from exporter.core.base.errors import ImageError
from exporter.core.base.records import Preprocessing, normalise
from exporter.core.base.vocabulary import CropMode, Interpolation
from exporter.data.images import ImageFile, ImageFolder, dataset_sha256
from exporter.data.pixels import (
    DARK,
    check_normalised,
    images_in,
    load_image,
    read_rgb,
    stream,
    to_pixels,
    to_rgb,
)
from tests.calibration.samples import bomb, picture, pictures, raw_png
from tests.vits import make_vit

SIZE = (3, 4, 6)


def pixels(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, *SIZE), np.uint8)


def arrays(folder: ImageFolder) -> np.ndarray[Any, Any]:
    return np.stack([file.pixels for file in folder.files if file.pixels is not None])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_array_and_a_tensor(dtype: Any) -> None:
    images = pixels(5).astype(dtype)
    for given in (images, torch.from_numpy(images)):
        # The caller draws.
        found = images_in(given, SIZE, most=2)
        assert np.array_equal(arrays(found), images)
        assert arrays(found).dtype == dtype
    assert not found.labelled


@pytest.mark.parametrize(
    "wrap",
    [
        lambda images: images,
        lambda images: (images, torch.zeros(len(images))),
        lambda images: [images],
        lambda images: {"pixel_values": images, "labels": None},
        lambda images: {"label": None, "image": images},
    ],
)
def test_the_batches_of_a_loader(wrap: Any) -> None:
    batches = [torch.from_numpy(pixels(2, seed)) for seed in range(3)]
    found = images_in(map(wrap, batches), SIZE)
    assert np.array_equal(arrays(found), torch.cat(batches).numpy())


def test_a_loader_of_torch() -> None:
    images = torch.randn(5, *SIZE, dtype=torch.float64, requires_grad=True)
    loader = DataLoader(TensorDataset(images.detach(), torch.arange(5)), batch_size=2)
    assert np.array_equal(
        arrays(images_in(loader, SIZE)), images.detach().float().numpy()
    )
    assert np.array_equal(
        arrays(images_in(images, SIZE)), images.detach().float().numpy()
    )


def test_no_more_of_a_loader_is_read_than_is_asked_for() -> None:
    read = []

    def endless() -> Iterator[torch.Tensor]:
        while True:
            read.append(1)
            yield torch.zeros(2, *SIZE)

    assert len(images_in(endless(), SIZE, most=3).files) == 3
    assert len(read) == 2


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (pixels(0), "images | got none | need at least one"),
        ([], "images | got none | need at least one"),
        (
            pixels(2)[0],
            "images | got shape [3, 4, 6] | need [n, 3, 4, 6], the model's input",
        ),
        (pixels(2)[:, :, :3], "got shape [2, 3, 3, 6]"),
        (
            pixels(2).astype(np.int64),
            "images | got int64 | need uint8 pixels, or floats as normalised",
        ),
        (np.full((1, *SIZE), np.nan), "images | got values that are not finite"),
        (
            np.ma.masked_array(pixels(1), pixels(1) > 9),
            "images | got a mask over pixels",
        ),
        (torch.zeros(1, *SIZE, device="meta"), "need an array of values"),
        ([3], "images | got a batch with int in the place of images"),
        (
            [{"x": pixels(1)}],
            "images | got a batch with NoneType in the place of images",
        ),
    ],
)
def test_what_is_no_image_is_refused(images: Any, message: str) -> None:
    with pytest.raises(ImageError) as caught:
        images_in(images, SIZE)
    assert message in str(caught.value)


def test_bytes_of_0_and_1_are_no_pixels() -> None:
    with pytest.raises(ImageError, match="multiply by 255"):
        check_normalised(images_in(pixels(2) % 2, SIZE), IMAGENET)


def test_they_load_as_they_are() -> None:
    preprocessing: Preprocessing = make_vit().spec.preprocessing
    (file,) = images_in(pixels(1), SIZE).files
    loaded = load_image(file, preprocessing, preprocessing)
    assert len(loaded.views) == 2
    assert np.array_equal(loaded.pixels, pixels(1)[0])


def test_their_digest_is_that_of_their_values() -> None:
    first, same, other = (
        dataset_sha256(images_in(pixels(3, seed), SIZE).files) for seed in (0, 0, 1)
    )
    assert first == same != other


IMAGENET = Preprocessing(
    (3, 32, 32),
    Interpolation.BICUBIC,
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
    0.9,
    CropMode.CENTER,
)


def loaded(path: Path) -> np.ndarray:
    item = load_image(ImageFile(path, None), IMAGENET)
    assert not item.reason
    return item.pixels


def reason(path: Path) -> str:
    item = load_image(ImageFile(path, None), IMAGENET)
    assert item.reason and "\n" not in item.reason
    return item.reason


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        (IMAGENET.mean, IMAGENET.std),
        ((0.5,) * 3, (0.5,) * 3),
        ((0.1, 0.2, 0.3), (0.9, 0.3, 0.7)),
    ],
)
def test_every_pixel_value_is_normalised_bit_for_bit_as_timm_does(
    mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    grey = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).convert(
        "RGB"
    )
    preprocessing = Preprocessing(
        (3, 16, 16), Interpolation.BICUBIC, mean, std, 1.0, CropMode.CENTER
    )
    theirs = Compose([ToTensor(), Normalize(torch.tensor(mean), torch.tensor(std))])(
        grey
    ).numpy()
    pixels = to_pixels(grey)
    ours = normalise(np.stack([pixels, pixels]), preprocessing)
    assert (ours.dtype, pixels.dtype) == (np.float32, np.uint8)
    for image in ours:
        np.testing.assert_array_equal(image, theirs)


@pytest.mark.parametrize(
    "mode",
    ["1", "L", "LA", "P", "PA", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB", "RGBa"],
)
def test_every_mode_becomes_rgb(mode: str) -> None:
    grey = Image.fromarray(np.full((6, 6), 255, dtype=np.uint8))
    rgb = to_rgb(
        grey.convert("P").convert("PA")
        if mode == "PA"
        else grey.convert("RGB").convert(mode)
    )
    assert rgb.mode == "RGB"
    assert np.abs(np.asarray(rgb)[3, 3] - 255.0).max() <= (mode == "LAB")


def decoded(path: Path) -> list[int]:
    """The grey values of the first row."""
    return [
        int(value) for value in np.asarray(read_rgb(ImageFile(path, None)))[0, :, 0]
    ]


@pytest.mark.parametrize(
    ("values", "kind", "is_guessed"),
    [
        ([0, 200], np.int32, True),
        ([0.0, 0.5], np.float32, True),
        ([0, 200], np.uint16, False),
    ],
)
def test_a_white_that_no_file_tells_is_a_line(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    values: list[float],
    kind: type,
    is_guessed: bool,
) -> None:
    Image.fromarray(np.array([values] * 4, kind)).save(tmp_path / "grey.tif")
    with Image.open(tmp_path / "grey.tif") as image:
        to_rgb(image)
    assert ("which value is white" in caplog.text) is is_guessed


def test_a_dark_image_of_16_bits_stays_dark_which_is_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("grey.png", "grey.pgm"):
        Image.fromarray(np.full((2, 3), 200, np.uint16)).save(tmp_path / name)
        assert decoded(tmp_path / name) == [1, 1, 1]
    assert set(caplog.messages) == {DARK}
    caplog.clear()
    for value in (0, 64, 255):
        Image.new("RGB", (2, 3), (value, 0, 0)).save(tmp_path / "colour.png")
        read_rgb(ImageFile(tmp_path / "colour.png", None))
    assert not caplog.messages


INVERTED, TWELVE, PACKED = {262: 0}, {281: 4095}, {256: 4, 258: 12}
UNKNOWN_DEPTH = r"grey values from \S+ to \S+ where black is 0 and white is \d+"


@pytest.mark.parametrize(
    ("values", "kind", "tags", "expected"),
    [
        ([0, 3, 252, 255], np.int32, {}, [0, 3, 252, 255]),
        ([0, 1], np.int32, {}, [0, 1]),
        ([0, 257, 65535, 30000], np.int32, {}, [0, 1, 255, 117]),
        ([0, 3, 252, 255], np.uint16, {}, [0, 0, 1, 1]),
        ([0.0, 0.5, 1.0, 0.1], np.float32, {}, [0, 128, 255, 26]),
        ([0.0, 1.0], np.float32, {}, [0, 255]),
        ([0.0, 2.0, 255.0], np.float32, {}, [0, 2, 255]),
        ([0, 257, 65535], np.uint16, INVERTED, [255, 254, 0]),
        ([0, 4095, 2048], np.uint16, TWELVE, [0, 255, 128]),
        ([0, 4095, 2048], np.uint16, {**TWELVE, **INVERTED}, [255, 0, 127]),
        ([1000, 3000, 2000], np.uint16, {280: 1000, 281: 3000}, [0, 255, 128]),
        ([-500, 500, 0], np.int16, {340: -500, 341: 500}, [0, 255, 128]),
        ([0, 1000, 4095], np.int32, TWELVE, [0, 62, 255]),
        ([0.0, 1000.0, 250.0], np.float32, {341: 1000.0}, [0, 255, 64]),
        ([0.0, 0.25, 1.0], np.float32, INVERTED, [255, 191, 0]),
        # Two pixels of 12 bits are three bytes.
        ([0x00, 0x0F, 0xFF, 0x80, 0x00, 0x10], np.uint8, PACKED, [0, 255, 128, 1]),
        # As Pillow decodes them: it follows tag 262, and no training loader follows tag 281.
        ([0, 100, 255], np.uint8, INVERTED, [255, 155, 0]),
        ([0, 100, 200], np.uint8, {281: 200}, [0, 100, 200]),
    ],
)
def test_grey_of_any_depth_follows_one_rule_and_the_words_of_a_tiff(
    tmp_path: Path,
    values: list[float],
    kind: type,
    tags: dict[int, float],
    expected: list[int],
) -> None:
    write_tiff(tmp_path / "grey.tif", np.array([values], kind), tags)
    assert decoded(tmp_path / "grey.tif") == expected


@pytest.mark.parametrize(
    ("values", "kind", "tags", "message"),
    [
        ([-1, 200], np.int32, {}, UNKNOWN_DEPTH),
        ([0, 70_000], np.int32, {}, UNKNOWN_DEPTH),
        ([0.0, 1.5], np.float32, {}, UNKNOWN_DEPTH),
        ([0.0, 256.0], np.float32, {}, UNKNOWN_DEPTH),
        ([-0.1, 0.5], np.float32, {}, UNKNOWN_DEPTH),
        ([0.0, math.nan], np.float32, {}, UNKNOWN_DEPTH),
        ([0.0, math.inf], np.float32, {}, UNKNOWN_DEPTH),
        ([0, 5000], np.uint16, TWELVE, "from 0 to 5000 where black is 0"),
        ([0, 9], np.int16, {}, "signed values, and no word"),
        ([0, 9], np.int8, {}, "signed values, and no word"),
        ([7, 7], np.uint16, {280: 7, 281: 7}, "where black is 7 and white"),
        ([[0, 0, 0]] * 2, np.uint16, TWELVE, "colours whose white is not"),
    ],
)
def test_grey_that_is_not_followed_is_skipped_with_the_reason(
    tmp_path: Path, values: Any, kind: type, tags: dict[int, float], message: str
) -> None:
    write_tiff(tmp_path / "grey.tif", np.array([values], kind), tags)
    assert re.search(message, reason(tmp_path / "grey.tif"))


def write_tiff(path: Path, values: np.ndarray, tags: Mapping[int, float]) -> None:
    """Write one strip with the tags, which Pillow would not write for all of these."""
    height, width, *channels = values.shape
    bits, kinds = 8 * values.itemsize, {"u": 1, "i": 2, "f": 3}
    count = channels[0] if channels else 1
    entries = {
        256: width,
        257: height,
        258: bits,
        259: 1,
        262: 2 if channels else 1,
        277: count,
        278: height,
        279: values.nbytes,
        339: kinds[values.dtype.kind],
        **tags,
    }
    entries[273] = 8 + 2 + 12 * (len(entries) + 1) + 4
    content = struct.pack("<2sHIH", b"II", 42, 8, len(entries))
    for tag, value in sorted(entries.items()):
        kind, code = ("f", 11) if isinstance(value, float) else ("i", 9)
        if tag in (258, 339) and count > 1:
            code, kind = 3, "i"
        content += struct.pack(f"<HHI{kind}", tag, code, 1, value)
    path.write_bytes(content + bytes(4) + values.tobytes())


def test_the_rotation_in_exif_is_not_applied_as_training_loaders_do(
    tmp_path: Path,
) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "turned.jpg", exif=turned)
    assert read_rgb(ImageFile(tmp_path / "turned.jpg", None)).size == (40, 20)


def test_colours_of_16_bits_are_as_pillow_decodes_them(tmp_path: Path) -> None:
    # Pillow cannot write one.
    raw_png(
        tmp_path / "deep.png",
        (1, 1),
        16,
        b"\0" + struct.pack(">HHH", 65535, 30000, 255),
    )
    rgb = read_rgb(ImageFile(tmp_path / "deep.png", None))
    assert rgb.getpixel((0, 0)) == (255, 117, 0)


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path: Path) -> None:
    image = Image.fromarray(np.full((40, 40), 1, dtype=np.uint8)).convert("P")
    image.putpalette([0, 0, 0, 10, 20, 30] + [0] * 762)
    image.save(tmp_path / "palette.png", transparency=bytes([255, 0]))
    assert loaded(tmp_path / "palette.png")[:, 16, 16].tolist() == [10, 20, 30]


def test_alpha_is_dropped_as_training_loaders_do(tmp_path: Path) -> None:
    Image.new("RGBA", (40, 40), (200, 100, 50, 0)).save(tmp_path / "clear.png")
    assert loaded(tmp_path / "clear.png")[:, 16, 16].tolist() == [200, 100, 50]


def test_a_bomb_is_not_decoded(tmp_path: Path) -> None:
    assert "20000" in reason(
        bomb(tmp_path / "huge.png", 20_000, 20_000)
    ) or "exceeds" in reason(tmp_path / "huge.png")
    large = bomb(tmp_path / "large.png", 10_000, 10_000)
    assert "100000000" in reason(large)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "10000x10000 pixels" in reason(large)


def test_a_strip_is_not_blown_up(tmp_path: Path) -> None:
    assert "101 times" not in reason(picture(tmp_path / "strip.png", size=(2020, 2)))
    assert "over 100 times" in reason(tmp_path / "strip.png")


def test_broken_images_are_skipped_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pictures(tmp_path, 4)
    (tmp_path / "001.png").write_bytes((tmp_path / "001.png").read_bytes()[:200])
    (tmp_path / "002.png").write_text("no image")
    files = [ImageFile(tmp_path / f"{index:03}.png", index) for index in range(5)]
    with caplog.at_level(logging.WARNING):
        items = list(stream(files, IMAGENET, ahead=1))
    assert [item.file.label for item in items] == [0, 1, 2, 3, 4]
    assert [item.file.label for item in items if not item.reason] == [0, 3]
    assert len(caplog.messages) == 3
    for name, message in zip(
        ("001.png", "002.png", "004.png"), caplog.messages, strict=True
    ):
        assert name in message and "\n" not in message


# A mean and a deviation on the scale of 0 to 1.
CONVENTIONS = {
    "imagenet": (IMAGENET.mean, IMAGENET.std),
    "half": ((0.5,) * 3, (0.5,) * 3),
    "clip": (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
    "0 to 1": ((0.0,) * 3, (1.0,) * 3),
}
# What else is given, from pixels of 0 to 255 and the model's own mean and deviation.
GIVEN: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "0 to 255": lambda pixels, mean, std: pixels,
    "not divided by 255": lambda pixels, mean, std: (pixels - mean) / std,
    "divided twice": lambda pixels, mean, std: (pixels / 255**2 - mean) / std,
    "mean of 255 alone": lambda pixels, mean, std: pixels - 255 * mean,
    "deviation of 255 alone": lambda pixels, mean, std: (
        (pixels / 255 - mean) / (255 * std)
    ),
    "means of BGR": lambda pixels, mean, std: (pixels / 255 - mean[::-1]) / std[::-1],
}
REFUSED, LINE, NOTHING = "refused", "line", "nothing"
# Resized floats that another convention makes may be those of the model's.
ALIKE = {("imagenet", "clip"), ("clip", "imagenet")}
ALIKE |= {("imagenet", "means of BGR"), ("clip", "means of BGR")}


def pictures_of(*, resized: bool) -> np.ndarray[Any, Any]:
    """Pixels from 0 to 255, whole numbers unless they are resized as floats."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (8, 3, 6, 6)).repeat(8, 2).repeat(8, 3)
    between = rng.uniform(-0.5, 0.5, coarse.shape) if resized else 0
    return np.clip(coarse + between, 0, 255).astype(np.float32)


def judged(images: Any, steps: Preprocessing, *, noise: bool) -> str:
    """What becomes of images as floats: refused, one line, or nothing."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("exporter.data.pixels")
    logger.addHandler(handler)
    try:
        check_normalised(images_in(images, SIZE_OF_ALL), steps, noise=noise)
    except ImageError as error:
        assert "need floats as normalised for the model, from" in str(error)
        return REFUSED
    finally:
        logger.removeHandler(handler)
    assert len(lines) <= 1
    return LINE if lines else NOTHING


SIZE_OF_ALL = (3, 48, 48)


@pytest.mark.parametrize("given", [*CONVENTIONS, *GIVEN])
@pytest.mark.parametrize("model", CONVENTIONS)
def test_a_model_of_each_convention_given_floats_of_each(
    model: str, given: str
) -> None:
    """Pixels of 8 bits are told apart exactly; floats that were resized by their range, which has two ends."""
    mean, std = CONVENTIONS[model]
    steps = replace(IMAGENET, input_size=SIZE_OF_ALL, mean=mean, std=std)

    def normalised(pixels: np.ndarray) -> np.ndarray:
        name = model if given in GIVEN else given
        means, stds = (
            np.array(row, np.float32)[:, None, None] for row in CONVENTIONS[name]
        )
        if given in GIVEN:
            return GIVEN[given](pixels, means, stds)
        return (pixels / np.float32(255) - means) / stds

    images, resized = (
        normalised(pictures_of(resized=resized)) for resized in (False, True)
    )
    is_same = given == model or (given == "means of BGR" and len(set(mean)) == 1)
    for noise in (False, True):
        expected = NOTHING if is_same else REFUSED
        assert judged(images, steps, noise=noise) == expected
    halves = images.astype(np.float16), torch.from_numpy(images).bfloat16()
    for half in halves if is_same else ():
        assert judged(half, steps, noise=False) == NOTHING
    is_alike = is_same or (model, given) in ALIKE
    assert judged(resized, steps, noise=False) == (NOTHING if is_alike else REFUSED)
    assert is_alike or judged(resized, steps, noise=True) != NOTHING


def test_pixels_with_a_border_are_those_of_the_model() -> None:
    steps = replace(IMAGENET, input_size=SIZE_OF_ALL)
    images = normalise(pictures_of(resized=False).astype(np.uint8), steps)
    images[:, :, :12] = 0
    assert judged(images, steps, noise=False) == NOTHING
    assert judged(images.astype(np.uint8), steps, noise=False) == NOTHING


def test_noise_beyond_white_gives_no_ranges_and_elsewhere_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = replace(IMAGENET, input_size=(3, 8, 8))
    noise = 9 * np.random.default_rng(0).standard_normal((4, 3, 8, 8), np.float32)
    check_normalised(images_in(noise, (3, 8, 8)), steps)
    (line,) = caplog.messages
    assert line.startswith("images | got floats from -")
    with pytest.raises(ImageError, match="got floats from -"):
        check_normalised(images_in(noise, (3, 8, 8)), steps, noise=False)
