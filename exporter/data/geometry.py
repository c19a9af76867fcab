"""Resize and crop an image to the model's input size, with Pillow alone.

Bit for bit the test transforms of timm and torchvision, and Hugging Face's processors that use Pillow.
"""

from math import floor

from PIL import Image, ImageOps

from exporter.records import Preprocessing
from exporter.vocabulary import CropMode, CropRounding

__all__ = ["to_input_size"]

Size = tuple[int, int]  # height and width


def to_input_size(image: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    """Resize an RGB image and crop its centre; missing pixels get the mean colour under "border", else black."""
    _, height, width = preprocessing.input_size
    scaled = floor(height / preprocessing.crop_pct), floor(width / preprocessing.crop_pct)
    before, mode = (image.height, image.width), preprocessing.crop_mode
    after = before if mode == CropMode.NONE else _resized(before, scaled, mode)
    if after != before:
        image = image.resize(after[::-1], Image.Resampling[preprocessing.interpolation.name])
    if mode == CropMode.BORDER:
        red, green, blue = (round(255 * value) for value in preprocessing.mean)
        image = _padded(image, (height, width), (red, green, blue))
    return _cropped(image, (height, width), preprocessing.crop_rounding)


def _resized(size: Size, target: Size, mode: CropMode) -> Size:
    """Return the size to which an image is resized before it is cropped to `target` or less."""
    if mode == CropMode.SQUASH:
        return target
    height, width = size
    if mode == CropMode.CENTER and target[0] == target[1]:
        # torchvision truncates here; timm rounds below.
        longer = int(target[0] * max(size) / min(size))
        return (longer, target[1]) if height > width else (target[0], longer)
    ratios = height / target[0], width / target[1]
    ratio = max(ratios) if mode == CropMode.BORDER else min(ratios)
    # Without this limit, a strip would be resized to nothing.
    return max(1, round(height / ratio)), max(1, round(width / ratio))


def _padded(image: Image.Image, size: Size, fill: tuple[int, int, int]) -> Image.Image:
    rows, columns = max(size[0] - image.height, 0), max(size[1] - image.width, 0)
    if not rows and not columns:
        return image
    border = columns // 2, rows // 2, (columns + 1) // 2, (rows + 1) // 2
    return ImageOps.expand(image, border, fill)


def _cropped(image: Image.Image, size: Size, rounding: CropRounding) -> Image.Image:
    height, width = size
    top, left = (image.height - height) / 2, (image.width - width) / 2
    top, left = (floor(top), floor(left)) if rounding == CropRounding.DOWN else (round(top), round(left))
    # Pillow gives black for pixels outside the image.
    return image.crop((left, top, left + width, top + height))
