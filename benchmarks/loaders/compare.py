r"""Print the logits of one image through every loader of a pruned model. Markdown.

    star-export compile --model digits_vit --images TRAIN --mac-reduction 0.4 --out F
    python benchmarks/loaders/compare.py F --place build/loaders

The image is the first one of the folder's `reference.npz`, as a PNG of the model's size: nothing is left to resize.
`--dense` takes the unpruned model, whose logits are the owner's.
`--place` gets the packages that the loaders need once, of pip and npm; the constants below have their versions.
A loader that cannot be installed here, or fails, is a row with the reason.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sysconfig
import tarfile
import urllib.request
import venv
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from exporter.core.base.records import Preprocessing
from exporter.core.base.tensor_names import IMAGES, LOGITS, Array
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.core.verify.playback_runner import dense_name
from exporter.serve.export_folder import REFERENCE, read_models, read_reference
from exporter.serve.huggingface import write_model

HERE = Path(__file__).parent
# optimum-onnx 0.1 takes no transformers 5, so it has an environment of its own; torch and the rest are this one's.
OPTIMUM = (
    "optimum==2.1.0",
    "optimum-onnx==0.1.0",
    "transformers==4.57.6",
    "huggingface-hub==0.36.2",
    "tokenizers==0.22.2",
)
TRACT = ("tract==0.23.9",)
WEBGPU = ("onnxruntime-webgpu==1.27.0",)
CHROMIUM = "@sparticuz/chromium"
# Whoever first asks where it is unpacks it; asked by two at a time, one would start what is half there.
UNPACK = f"""
import chromium from '{CHROMIUM}';
process.env.TMPDIR = process.cwd();
await chromium.executablePath();
"""
NPM = {
    "@huggingface/transformers": "4.3.1",
    CHROMIUM: "147.0.0",
    "puppeteer-core": "24.43.1",
}
# SwiftShader has no fp16. Mesa's driver has it where the CPU converts it (F16C); Dawn refuses the one of Debian 12
# itself, and takes this one of its backports.
LAVAPIPE = "http://deb.debian.org/debian/pool/main/m/mesa/mesa-vulkan-drivers_25.0.7-2~bpo12+1_amd64.deb"
LAVAPIPE_SHA256 = "3899f1800424c60a05df5d6913076a526ca8fdbabec43672cd397563d1ca3263"
LAVAPIPE_LIBRARY = "usr/lib/x86_64-linux-gnu/libvulkan_lvp.so"
NAME = "model"
# The reason of a loader that ran and gave no logits.
FAILED = "failed"


@dataclass(frozen=True)
class Row:
    """The logits that a loader gives, or why it was not installed, or that it failed."""

    loader: str
    logits: Array | None = None
    reason: str = ""


@dataclass(frozen=True)
class Question:
    """A model as we wrote it and in a folder of Hugging Face's, an image of its size, and where packages lie.

    `images` is the same image as the model takes it, `expected` PyTorch's logits.
    """

    model: Path
    models: Path
    image: Path
    images: Array
    expected: Array
    place: Path


class NotInstalledError(Exception):
    """A loader's program is not there, or its packages cannot be got."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="An export folder of a classifier.")
    parser.add_argument(
        "--place", type=Path, required=True, help="Where packages are put."
    )
    parser.add_argument("--dense", action="store_true", help="Take the unpruned model.")
    options = parser.parse_args()
    rows = logits_of(options.folder, options.place, dense=options.dense)
    print("\n".join(table(rows)))


def logits_of(folder: Path, place: Path, *, dense: bool = False) -> list[Row]:
    """Return a row for each loader."""
    question = question_of(folder, place.absolute(), dense=dense)
    return [_row(name, loader, question) for name, loader in LOADERS.items()]


def table(rows: list[Row]) -> list[str]:
    """Return the lines of the table: the first three logits, and the largest difference from PyTorch's."""
    lines = ["| loader | first logits | largest difference |", "|---|---|---|"]
    expected = rows[0].logits
    for row in rows:
        if row.logits is None or expected is None:
            lines.append(f"| {row.loader} | none: {row.reason} | |")
            continue
        first = ", ".join(f"{value:.5f}" for value in row.logits[:3])
        difference = float(np.abs(row.logits - expected).max())
        lines.append(f"| {row.loader} | {first} | {difference:.1e} |")
    return lines


def question_of(folder: Path, place: Path, *, dense: bool) -> Question:
    """Write the model and the image for the loaders."""
    models, image = place / "models", place / "image.png"
    pair = read_models(folder)
    lowered = pair.dense if dense else pair.pruned
    preprocessing = lowered.spec.preprocessing
    if preprocessing.crop_pct != 1:
        raise SystemExit(
            f"{lowered.path} | got a crop_pct of {preprocessing.crop_pct:g} | need 1"
        )
    shutil.rmtree(models, ignore_errors=True)
    write_model(lowered, models / NAME)
    reference = read_reference(folder / REFERENCE)
    logits = reference[dense_name(LOGITS) if dense else LOGITS]
    images = reference[IMAGES][:1]
    pixels = to_bytes(images[0], preprocessing)
    Image.fromarray(pixels).save(image)
    return Question(lowered.path, models, image, images, logits[0], place)


def to_bytes(image: Array, preprocessing: Preprocessing) -> Array:
    """Return the pixels, [height, width, 3] uint8, of which an image was normalised."""
    mean, std = (
        np.reshape(values, (3, 1, 1))
        for values in (preprocessing.mean, preprocessing.std)
    )
    return np.rint((image * std + mean) * 255).astype(np.uint8).transpose(1, 2, 0)


def _row(name: str, loader: Callable[[Question], Array], question: Question) -> Row:
    try:
        return Row(name, loader(question))
    except NotInstalledError as error:
        return Row(name, reason=f"{error}")
    except subprocess.CalledProcessError as error:
        words = " ".join(f"{error.stderr}".split())
        return Row(name, reason=f"{FAILED}, exit code {error.returncode}: {words}")


def _pytorch(question: Question) -> Array:
    return question.expected


def _onnxruntime(question: Question) -> Array:
    with OnnxRuntimeRunner(question.model) as runner:
        return runner.run({IMAGES: question.images})[LOGITS][0]


def _optimum(question: Question) -> Array:
    python = python_with(question.place / "optimum", OPTIMUM)
    return _printed(
        [python, HERE / "optimum_logits.py", question.models / NAME, question.image]
    )


def _tract(question: Question) -> Array:
    python = python_with(question.place / "tract", TRACT)
    images = question.place / "images.npy"
    np.save(images, question.images)
    return _printed([python, HERE / "tract_logits.py", question.model, images])


def _node(question: Question) -> Array:
    return _transformers(question, "cpu")


def _chromium(question: Question) -> Array:
    return _transformers(question, "wasm")


def _chromium_webgpu(question: Question) -> Array:
    return _transformers(question, "webgpu")


def _transformers(question: Question, device: str) -> Array:
    modules = node_modules(question.place / "npm", NPM)
    script = HERE / "transformers.mjs"
    arguments = (device, question.models, NAME, "fp32", question.image)
    return _printed(["node", script, *arguments], modules)


def _webgpu(question: Question) -> Array:
    images = question.place / "images.npy"
    np.save(images, question.images)
    return np.array(places_of([question.model], images, question.place)[0]["logits"][0])


LOADERS: dict[str, Callable[[Question], Array]] = {
    "PyTorch": _pytorch,
    "ONNX Runtime": _onnxruntime,
    "optimum": _optimum,
    "transformers.js on Node": _node,
    "transformers.js in Chromium, WASM": _chromium,
    "transformers.js in Chromium, WebGPU on SwiftShader": _chromium_webgpu,
    "ONNX Runtime, WebGPU on SwiftShader": _webgpu,
    "tract": _tract,
}


def places_of(
    files: list[Path], images: Path, place: Path, *, half: bool = False
) -> list[dict[str, Any]]:
    """Return what `webgpu_places.py` prints of each file, which has fp16 in it or not."""
    python = python_with(place / "webgpu", WEBGPU)
    command = [python, HERE / "webgpu_places.py", *files, images]
    environment = {**os.environ, **vulkan_on_cpu(place, half=half)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    records = json.loads(done.stdout.splitlines()[-1])
    return [records[str(file)] for file in files]


def vulkan_on_cpu(place: Path, *, half: bool = False) -> dict[str, str]:
    """Return the variables by which Vulkan is a driver in software: SwiftShader, or for fp16 Mesa's lavapipe."""
    driver = _swiftshader(place)  # with Vulkan's loader
    icd = _lavapipe(place) if half else driver / "vk_swiftshader_icd.json"
    return {"LD_LIBRARY_PATH": str(driver), "VK_ICD_FILENAMES": str(icd)}


def _swiftshader(place: Path) -> Path:
    """Return the folder of the driver out of a package of npm."""
    driver = place / "swiftshader"
    if not (driver / "vk_swiftshader_icd.json").is_file():
        modules = node_modules(place / "npm", NPM)
        packed = modules / f"node_modules/{CHROMIUM}/bin/swiftshader.tar.br"
        unpack = "process.stdout.write(zlib.brotliDecompressSync(fs.readFileSync(process.argv[1])))"
        done = subprocess.run(
            ["node", "-e", unpack, packed], stdout=subprocess.PIPE, check=True
        )
        with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
            archive.extractall(driver, filter="data")
    return driver


def _lavapipe(place: Path) -> Path:
    """Return the file that names the driver to Vulkan, out of a package of Debian."""
    root = place / "lavapipe"
    icd = root / "icd.json"
    if icd.is_file():
        return icd
    root.mkdir(parents=True, exist_ok=True)
    package, library = root / "package.deb", root / LAVAPIPE_LIBRARY
    package.write_bytes(_fetched(LAVAPIPE, LAVAPIPE_SHA256))
    _install(["dpkg-deb", "--extract", package, root])
    linked = subprocess.run(
        ["ldd", library], stdout=subprocess.PIPE, text=True, check=True
    )
    missing = [
        line.split()[0] for line in linked.stdout.splitlines() if "=> not" in line
    ]
    if missing:
        raise NotInstalledError(f"{library.name} needs {', '.join(missing)}")
    driver = {"library_path": str(library), "api_version": "1.4.305"}
    icd.write_text(
        json.dumps({"file_format_version": "1.0.0", "ICD": driver}), encoding="utf-8"
    )
    return icd


def _fetched(url: str, sha256: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
    except OSError as error:
        raise NotInstalledError(f"{url}: {error}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise NotInstalledError(f"{url}: not the file that was here before")
    return content


def _printed(command: list[str | Path], folder: Path | None = None) -> Array:
    """Return the array that a command prints in its last line."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True
    )
    return np.array(json.loads(done.stdout.splitlines()[-1]), np.float32)


def python_with(place: Path, pins: tuple[str, ...]) -> Path:
    """Return the interpreter of an environment with these packages before those of this one; made once."""
    python = place / "bin/python"
    if _is_made(place, pins):
        return python
    venv.create(place, clear=True, with_pip=True)
    _install([python, "-m", "pip", "install", "--quiet", "--no-deps", *pins])
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "behind.pth").write_text(
        sysconfig.get_path("purelib") + "\n", encoding="utf-8"
    )
    _mark(place, pins)
    return python


def node_modules(place: Path, pins: dict[str, str]) -> Path:
    """Return a folder with these packages of npm; made once, and no script of theirs is run."""
    if _is_made(place, pins):
        return place
    if shutil.which("node") is None:
        raise NotInstalledError("no node on PATH")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "package.json").write_text(
        json.dumps({"dependencies": pins}), encoding="utf-8"
    )
    _install(["npm", "install", "--ignore-scripts", "--silent"], place)
    if CHROMIUM in pins:
        _install(["node", "--input-type=module", "--eval", UNPACK], place)
    _mark(place, pins)
    return place


def _install(command: list[str | Path], folder: Path | None = None) -> None:
    if shutil.which(command[0]) is None:
        raise NotInstalledError(f"no {command[0]} on PATH")
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotInstalledError(lines[-1] if lines else f"exit {done.returncode}")


def _is_made(place: Path, pins: object) -> bool:
    mark = place / "made.json"
    return mark.is_file() and mark.read_text(encoding="utf-8") == json.dumps(pins)


def _mark(place: Path, pins: object) -> None:
    (place / "made.json").write_text(json.dumps(pins), encoding="utf-8")


if __name__ == "__main__":
    main()
