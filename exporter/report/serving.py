"""Write a short script that serves a lowered model without this package: by NumPy, Pillow and its runtime alone."""

from exporter.core.base.artefact import Artefact
from exporter.core.base.targets import ONNXRUNTIME_CPU, OPENVINO_CPU
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import InputKind, OutputKind

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

# The same for every model: it reads all that differs from the metadata.
SCRIPT = """\
import json, math, sys

import numpy as np
{library}
from PIL import Image


def fitted(image, how):
    _, height, width = how["input_size"]
    mode, method = how["crop_mode"], Image.Resampling[how["interpolation"].upper()]
    scaled = int(width / how["crop_pct"]), int(height / how["crop_pct"])
    ratios = image.width / scaled[0], image.height / scaled[1]
    if mode == "squash":
        image = image.resize(scaled, method)
    elif mode == "center" and height == width:
        short = min(image.size)
        image = image.resize([scaled[0] * side // short for side in image.size], method)
    elif mode != "none":
        ratio = max(ratios) if mode == "border" else min(ratios)
        sides = [max(1, round(side / ratio)) for side in image.size]
        image = image.resize(sides, method)
    if mode == "border":
        size = max(width, image.width), max(height, image.height)
        colour = tuple(round(255 * value) for value in how["mean"])
        padded = Image.new("RGB", size, colour)
        left, top = (size[0] - image.width) // 2, (size[1] - image.height) // 2
        padded.paste(image, (left, top))
        image = padded
    to_whole = math.floor if how["crop_rounding"] == "down" else round
    left = to_whole((image.width - width) / 2)
    top = to_whole((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


{open}
how, names = spec["preprocessing"], spec["class_names"]
image = Image.open(sys.argv[1])
if image.mode[0] in "IF":
    sys.exit("grey of more than 8 bits: bring it to 8 bits first")
image = fitted(image.convert("RGB"), how)
{pixels}
{run}
"""

PIXELS = "images = np.asarray(image).transpose(2, 0, 1)[None]"
NORMALISE = """
mean = np.array(how["mean"], np.float32).reshape(3, 1, 1)
std = np.array(how["std"], np.float32).reshape(3, 1, 1)
images = ((images / np.float32(255) - mean) / std).astype(np.float32)"""

CLASSES = """\
logits = {run}[0]
shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
for index in shares.argsort()[::-1][:5]:
    print(names[index] if names else index, round(float(shares[index]), 4))"""
SIDES = """\
logits = {run}[0]
for index, share in enumerate(1 / (1 + np.exp(-logits))):
    print(names[index] if names else index, "yes" if share > 0.5 else "no", round(float(share), 4))"""
VALUES = """\
values = {run}[0]
for index, value in enumerate(values):
    print(names[index] if names else index, float(value))"""
VECTOR = """\
values = {run}[0]
print(values.shape, values)"""
PRINTED = {
    OutputKind.LOGITS: CLASSES,
    OutputKind.LABELS: SIDES,
    OutputKind.VALUES: VALUES,
}


def serving_script(artefact: Artefact, file: str) -> str:
    """Return a Python script that prints what the model says about an image file; "" for engines.

    It reads preprocessing and class names from the model's metadata, and is run in the folder of the model:
    `python serve.py photo.jpg`.
    """
    if artefact.target.runtime not in OPEN:
        return ""
    library, opened, run = OPEN[artefact.target.runtime]
    output = artefact.spec.outputs[0]
    run = run.format(output=output.name, images=IMAGES)
    printed = PRINTED.get(output.kind, VECTOR)
    if output.kind == OutputKind.LOGITS and output.channels == 1:
        printed = SIDES
    is_raw = artefact.input_kind == InputKind.UINT8
    return SCRIPT.format(
        library=library,
        open=opened.format(file=file),
        pixels=PIXELS if is_raw else PIXELS + NORMALISE,
        run=printed.format(run=run),
    )
