"""Write a short script that serves a lowered model without this package: by NumPy, Pillow and its runtime alone."""

from exporter.artefact import Artefact
from exporter.records import Preprocessing
from exporter.targets import ONNXRUNTIME_CPU, OPENVINO_CPU
from exporter.tensor_names import IMAGES, LOGITS
from exporter.vocabulary import CropMode, CropRounding, InputKind

# How each runtime opens the file, says what is in it, and runs it.
OPEN = {
    ONNXRUNTIME_CPU: (
        "import onnxruntime",
        'session = onnxruntime.InferenceSession("{file}")\n'
        'spec = json.loads(session.get_modelmeta().custom_metadata_map["star_export.model"])',
        'session.run(["{output}"], {{"{images}": images}})[0]',
    ),
    OPENVINO_CPU: (
        "import openvino, pathlib",
        'model = openvino.Core().compile_model("{file}", "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})\n'
        'spec = json.loads(pathlib.Path("model.json").read_text())',
        'model({{"{images}": images}})["{output}"]',
    ),
}

SCRIPT = """\
import json, sys

import numpy as np
{library}
from PIL import Image

{open}
how, names = spec["preprocessing"], spec["class_names"]
_, height, width = how["input_size"]
method = Image.Resampling[how["interpolation"].upper()]
image = Image.open(sys.argv[1])
if image.mode[0] in "IF":
    sys.exit("grey of more than 8 bits: bring it to 8 bits first")
image = image.convert("RGB")
{resize}
{pixels}
{run}
"""

SIDE = 'side, short = int(height / how["crop_pct"]), min(image.size)\n'
SIDES = 'sides = int(width / how["crop_pct"]), int(height / how["crop_pct"])\n'
CROPS = {
    CropRounding.EVEN: "left, top = round((image.width - width) / 2), round((image.height - height) / 2)\n",
    CropRounding.DOWN: "left, top = (image.width - width) // 2, (image.height - height) // 2\n",
}
CROP = "image = image.crop((left, top, left + width, top + height))"
PAD = """\
size = max(width, image.width), max(height, image.height)
canvas = Image.new("RGB", size, tuple(round(255 * each) for each in how["mean"]))
canvas.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
image = canvas
"""

PIXELS = "pixels = np.asarray(image).transpose(2, 0, 1)[None]\n"
NORMALISE = """\
mean, std = (np.array(how[each], np.float32).reshape(3, 1, 1) for each in ("mean", "std"))
images = ((pixels / np.float32(255) - mean) / std).astype(np.float32)"""

CLASSES = """\
logits = {run}[0]
shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
for index in shares.argsort()[::-1][:5]:
    print(names[index] if names else index, round(float(shares[index]), 4))"""
VALUES = """\
values = {run}[0]
print(values.shape, values)"""


def serving_script(artefact: Artefact, file: str) -> str:
    """Return a Python script that prints what the model says about an image file; "" for engines.

    It reads preprocessing and class names from the model's metadata, and is run in the folder of the model:
    `python serve.py photo.jpg`.
    """
    if artefact.target.runtime not in OPEN:
        return ""
    library, opened, run = OPEN[artefact.target.runtime]
    output = artefact.spec.outputs[0].name
    run = run.format(output=output, images=IMAGES)
    raw = artefact.input_kind == InputKind.UINT8
    return SCRIPT.format(
        library=library,
        open=opened.format(file=file),
        resize=_resize(artefact.spec.preprocessing),
        pixels="images = " + PIXELS.removeprefix("pixels = ").rstrip()
        if raw
        else PIXELS + NORMALISE,
        run=(CLASSES if output == LOGITS else VALUES).format(run=run),
    )


def _resize(preprocessing: Preprocessing) -> str:
    """Return the lines that resize and crop as in training: those of the model's crop mode."""
    _, height, width = preprocessing.input_size
    crop = CROPS[preprocessing.crop_rounding] + CROP
    mode = preprocessing.crop_mode
    if mode == CropMode.NONE:
        return crop
    if mode == CropMode.SQUASH:
        return f"{SIDES}image = image.resize(sides, method)\n{crop}"
    if mode == CropMode.CENTER and height == width:
        sizes = "[side * each // short for each in image.size]"
        return f"{SIDE}image = image.resize({sizes}, method)\n{crop}"
    chosen, pad = ("max", PAD) if mode == CropMode.BORDER else ("min", "")
    ratio = f"ratio = {chosen}(image.width / sides[0], image.height / sides[1])\n"
    sizes = "[max(1, round(each / ratio)) for each in image.size]"
    return f"{SIDES}{ratio}image = image.resize({sizes}, method)\n{pad}{crop}"
