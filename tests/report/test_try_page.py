"""The page that runs both models: what it may load, its pixels, and in Chromium its answers and pictures.

The library comes from npm once, into `.pytest_cache/loaders`. Without node or a network those tests are skipped.
"""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from filelock import FileLock
from PIL import Image

from exporter.core.base.canonical_json import to_json
from exporter.core.base.records import Preprocessing, normalise
from exporter.core.base.targets import ONNXRUNTIME, TARGETS, WEB
from exporter.core.base.tensor_names import (
    IMAGES,
    LOGITS,
    TRACING,
    Array,
    instrumented_path,
    into_name,
)
from exporter.core.base.vocabulary import (
    CropMode,
    CropRounding,
    InputKind,
    Interpolation,
)
from exporter.core.prune.ops.curve import order_of
from exporter.core.verify.decisions import positions_by_layer
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.data.pixels import to_input_size, to_pixels
from exporter.report import page as report_page
from exporter.report.page import faded
from exporter.report.try_page import (
    BUILDS,
    LIBRARY,
    VERSION,
    runs_in_browser,
    save_try_page,
)
from exporter.serve.export_folder import TRY_PAGE, read_models
from tests.benchmarks.scripts import script
from tests.folders import artefacts
from tests.pages import ROOT

HERE = Path(__file__).parent
TEMPLATES = Path(report_page.__file__).parent / "templates"
PLACE = ROOT / ".pytest_cache/loaders"
FILES = {"dense": "a.onnx", "pruned": "b.onnx", TRACING: "b.tracing.onnx"}


@pytest.fixture(params=[ONNXRUNTIME, WEB], ids=lambda target: target.name)
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A page of either build."""
    artefact = artefacts(request.param).pruned
    save_try_page(artefact, FILES, tmp_path / TRY_PAGE, report="report.html")
    return (tmp_path / TRY_PAGE).read_text(encoding="utf-8")


def settings_of(text: str) -> Any:
    """What its scripts read."""
    (settings,) = re.findall(
        r'<script id="settings" type="application/json">(.*?)</script>', text
    )
    return json.loads(settings)


def test_it_may_load_the_library_alone(text: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<;]+", text))
    assert addresses == {LIBRARY, f"http://localhost:8000/{TRY_PAGE}"}
    assert VERSION in LIBRARY
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    sources = dict(part.split(" ", 1) for part in html.unescape(policy).split("; "))
    assert sources["default-src"] == sources["form-action"] == "'none'"
    assert sources["connect-src"] == f"'self' {LIBRARY}"
    assert set(re.findall(r'(?:src|href)="([^"]*)"', text)) == {"data:,", "report.html"}


def test_both_files_of_the_library_have_a_hash(text: str) -> None:
    build = settings_of(text)["build"]
    for role, suffix in {"script": ".mjs", "binary": ".wasm"}.items():
        assert Path(build[role]["name"]).suffix == suffix
        kind, digest = build[role]["integrity"].split("-", 1)
        assert kind == "sha384"
        assert (
            len(base64.b64decode(digest, validate=True)) == hashlib.sha384().digest_size
        )


def test_it_can_be_used_without_a_mouse(text: str) -> None:
    inputs = re.findall(r"<input [^>]*>", text)
    assert len(inputs) == 3 and len(re.findall(r"<label[^>]*>[^<]*<input ", text)) == 3
    assert not re.search(r"tabindex|outline: *(0|none)", text)
    assert 'role="status"' in text and "No picture leaves this machine" in text


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_only_files_that_a_browser_runs_have_one(target: Any) -> None:
    runs = target.name.startswith(("onnxruntime-", "web-"))
    assert runs_in_browser(artefacts(target).pruned) == runs


# Before, Pillow began with the rows of any picture, which rounds otherwise.
BEFORE_13 = int(PIL.__version__.split(".")[0]) < 13


@pytest.mark.parametrize("mode", CropMode)
@pytest.mark.skipif(shutil.which("node") is None, reason="no node on PATH")
@pytest.mark.skipif(BEFORE_13, reason=f"Pillow {PIL.__version__} rounds otherwise")
def test_every_pixel_is_pillows(mode: CropMode) -> None:
    generator = np.random.default_rng(len(mode))
    cases, expected = [], []
    for interpolation in Interpolation:
        for rounding in CropRounding:
            for share in (1.0, 0.9, 0.875, 0.5):
                sides = tuple(map(int, generator.integers(1, 70, 2)))
                size = tuple(map(int, generator.integers(1, 60, 2)))
                wanted = (3, size[0], size[share < 0.9])
                how = Preprocessing(
                    wanted,
                    interpolation,
                    (0.485, 0.456, 0.406),
                    (0.229, 0.224, 0.225),
                    share,
                    mode,
                    rounding,
                )
                pixels = generator.integers(0, 256, (*sides, 4), dtype=np.uint8)
                cases.append(
                    [json.loads(to_json(how)), *sides, pixels.ravel().tolist()]
                )
                image = Image.fromarray(np.ascontiguousarray(pixels[..., :3]))
                expected.append((to_pixels(to_input_size(image, how)), how))
    for values, (pixels, how) in zip(_in_node(cases), expected, strict=True):
        for numbers, array in zip(
            values, (pixels, normalise(pixels, how)), strict=True
        ):
            got = np.array(numbers, array.dtype).reshape(array.shape)
            np.testing.assert_array_equal(got, array, err_msg=repr(how))


def _in_node(cases: list[Any]) -> list[Any]:
    """What the page's script makes of pictures: bytes, and floats."""
    program = """
    const cases = JSON.parse(require('fs').readFileSync(0));
    console.log(JSON.stringify(cases.map(([how, height, width, data]) => {
      const picture = fitted({ width, height, data: Uint8ClampedArray.from(data) }, how);
      return ['uint8', 'float32'].map((kind) => [...inputOf(picture, how, kind)]);
    })));"""
    source = (TEMPLATES / "pixels.js").read_text(encoding="utf-8") + program
    done = subprocess.run(
        ["node", "-e", source],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    values: list[Any] = json.loads(done.stdout)
    return values


# In a browser.


@pytest.fixture(scope="module")
def packages() -> Path:
    """A folder with Chromium, what drives it, and the library."""
    compare = script("loaders/compare.py")
    drivers = (compare.CHROMIUM, "puppeteer-core")
    pins = {name: compare.NPM[name] for name in drivers} | {"onnxruntime-web": VERSION}
    PLACE.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(PLACE / ".lock"):
            place: Path = compare.node_modules(PLACE / "browser", pins)
    except compare.NotInstalledError as error:
        pytest.skip(f"{error}")
    return place


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photograph of noise on a slope, in no proportion of the model's."""
    generator = np.random.default_rng(3)
    slope = np.linspace(0, 200, 90)[:, None, None] + np.linspace(0, 40, 70)[:, None]
    pixels = slope + generator.integers(0, 16, (90, 70, 3))
    place = tmp_path_factory.mktemp("picture") / "photo.png"
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(place)
    return place


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder, served as `python -m http.server` does."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("localhost", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def visit(address: str, packages: Path, picture: Path, **more: Any) -> Any:
    """What is seen on the page after it got the picture."""
    dist = packages / "node_modules/onnxruntime-web/dist"
    words = {"library": LIBRARY, "dist": str(dist), "picture": str(picture), **more}
    done = subprocess.run(
        ["node", HERE / "try_page.mjs", address, json.dumps(words)],
        cwd=packages,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def ours(folder: Path, picture: Path) -> tuple[Array, dict[str, Any], dict[str, Array]]:
    """The pixels of a picture, the logits of both models, and the decisions of the pruned one."""
    models = read_models(folder)
    artefact = models.pruned
    with Image.open(picture) as image:
        fitted = to_input_size(image.convert("RGB"), artefact.spec.preprocessing)
    pixels = to_pixels(fitted)
    images = pixels[None]
    if artefact.input_kind == InputKind.FLOAT32:
        images = normalise(images, artefact.spec.preprocessing)
    outputs = {}
    for role, path in {
        "dense": models.dense.path,
        "pruned": models.pruned.path,
        TRACING: instrumented_path(models.pruned.path, TRACING),
    }.items():
        with OnnxRuntimeRunner(path) as runner:
            outputs[role] = runner.run({IMAGES: images})
    logits = {role: outputs[role][LOGITS][0] for role in ("dense", "pruned")}
    return pixels, logits, outputs[TRACING]


def members_by_layer(
    decisions: Mapping[str, Array], order: Array
) -> dict[int, dict[int, list[int]]]:
    """By pruning layer and by the patch of each token that is left, the patches that it stands for."""
    tokens = {int(patch): [int(patch)] for patch in order}
    layers = {}
    for layer, positions in positions_by_layer(decisions, order).items():
        before = list(tokens.values())
        left = [int(patch) for patch in positions[0] if patch >= 0]
        tokens = {patch: tokens[patch] for patch in left}
        if into_name(layer) in decisions:
            tokens = {patch: [] for patch in left}
            into = decisions[into_name(layer)][0]
            for members, place in zip(before, into, strict=True):
                tokens[left[place]] += members
        layers[layer] = tokens
    return layers


def painted(
    pixels: Array, tokens: Mapping[int, list[int]], grid: tuple[int, int]
) -> Array:
    """What the page should draw: a token in the mean colour of its patches, all that is gone faded."""
    result = faded(pixels, np.array(list(tokens)), grid)
    height, width = pixels.shape[1] // grid[0], pixels.shape[2] // grid[1]

    def box(patch: int) -> tuple[slice, slice, slice]:
        row, column = height * (patch // grid[1]), width * (patch % grid[1])
        return slice(None), slice(row, row + height), slice(column, column + width)

    for patch, members in tokens.items():
        if len(members) > 1:
            colours = [pixels[box(member)].mean(axis=(1, 2)) for member in members]
            result[box(patch)] = np.rint(np.mean(colours, axis=0))[:, None, None]
    return result


def drawn(address: str) -> Array:
    content = base64.b64decode(address.partition(",")[2])
    with Image.open(BytesIO(content)) as image:
        return to_pixels(image.convert("RGB"))


@pytest.mark.exhaustive
@pytest.mark.ort
@pytest.mark.parametrize(
    ("method", "target", "tolerance"),
    [
        ("a-star", "onnxruntime-fp32", 2e-5),
        ("tome", "onnxruntime-opset17-fp32", 2e-5),
        ("matching", "onnxruntime-int8", 2e-2),
        ("star", "onnxruntime-fp16", 2e-2),
        ("matching", "web-fp32", 2e-5),
    ],
)
def test_answers_and_pictures_are_ours(
    exported: Callable[..., Path],
    packages: Path,
    picture: Path,
    method: str,
    target: str,
    tolerance: float,
) -> None:
    folder = exported("--method", method, "--target", target)
    with served(folder) as address:
        gpu = target.startswith("web-")
        seen = visit(f"{address}{TRY_PAGE}", packages, picture, gpu=gpu)
    assert seen["errors"] == [] and seen["answer"], seen["state"]
    assert seen["device"].startswith("on WebGPU" if gpu else "on one thread")
    artefact = read_models(folder).pruned
    pixels, logits, decisions = ours(folder, picture)
    for role, expected in logits.items():
        np.testing.assert_allclose(
            seen["answer"]["logits"][role], expected, atol=tolerance
        )
    first = {role: int(values.argmax()) for role, values in logits.items()}
    assert all(name in seen["state"] for name in _names(artefact, first.values()))
    order = order_of(artefact.schedule, artefact.spec.grid)
    layers = members_by_layer(decisions, order)
    assert np.array_equal(drawn(seen["frames"][0]), pixels)
    assert len(seen["frames"]) == len(layers) + 1 > 1
    for (layer, tokens), frame, caption in zip(
        layers.items(), seen["frames"][1:], seen["captions"][1:], strict=True
    ):
        assert caption == f"layer {layer}: {len(tokens)}"
        if not artefact.schedule.adaptive:
            assert len(tokens) == artefact.schedule.left[layer]
        expected = painted(pixels, tokens, artefact.spec.grid)
        np.testing.assert_allclose(drawn(frame).astype(int), expected, atol=1)
    # Nothing before there is a picture; then the library, and what lies beside the page.
    assert seen["before"] == [f"{address}{TRY_PAGE}"]
    elsewhere = {place for place in seen["requests"] if not place.startswith(address)}
    assert seen["barred"].startswith("https://example.org")
    build = BUILDS[artefact.target.runtime]
    assert elsewhere == {
        f"{LIBRARY}{file.name}" for file in (build.script, build.binary)
    }


def _names(artefact: Any, classes: Any) -> list[str]:
    return [artefact.spec.class_names[index] for index in classes]


@pytest.mark.exhaustive
@pytest.mark.ort
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_with_a_copy_of_the_library_asks_nobody(
    exported: Callable[..., Path],
    packages: Path,
    picture: Path,
    tmp_path: Path,
    dark: bool,
) -> None:
    """Pixels go in as bytes here; the first key reaches the first input."""
    source = exported("--method", "star", "--input-kind", "uint8")
    folder = Path(shutil.copytree(source, tmp_path / "folder"))
    dist = packages / "node_modules/onnxruntime-web/dist"
    (folder / "ort").mkdir()
    build = BUILDS[ONNXRUNTIME.runtime]
    for file in (build.script, build.binary):
        shutil.copyfile(dist / file.name, folder / "ort" / file.name)
    with served(folder) as address:
        page = f"{address}{TRY_PAGE}?library=ort/"
        seen = visit(page, packages, picture, width=360, dark=dark)
        assert seen["errors"] == [] and seen["answer"], seen["state"]
        assert all(place.startswith(address) for place in seen["requests"])
        _, logits, _ = ours(source, picture)
        for role, expected in logits.items():
            np.testing.assert_allclose(
                seen["answer"]["logits"][role], expected, atol=2e-5
            )
        assert (seen["width"], seen["wide"]) == (360, []) and seen["scrolled"] <= 360
        background = "rgb(22, 27, 36)" if dark else "rgb(255, 255, 255)"
        assert seen["background"] == background
        assert (seen["first"], seen["unnamed"], seen["role"]) == (
            "picture",
            0,
            "status",
        )
        assert all(seen["titles"]) and not seen["asks"]
        # A changed library is not run.
        with (folder / "ort" / build.script.name).open("a") as changed:
            changed.write(" ")
        seen = visit(page, packages, picture)
        assert seen["answer"] is None and seen["state"].startswith("Not answered: ")


@pytest.mark.exhaustive
@pytest.mark.ort
def test_a_page_opened_as_a_file_takes_models_by_hand(
    exported: Callable[..., Path], packages: Path, picture: Path
) -> None:
    folder = exported("--method", "matching")
    page = (folder / TRY_PAGE).as_uri()
    seen = visit(page, packages, picture)
    assert seen["asks"] and seen["answer"] is None
    names = settings_of((folder / TRY_PAGE).read_text(encoding="utf-8"))["files"]
    assert names["dense"] in seen["state"]
    models = [str(folder / name) for name in names.values()]
    seen = visit(page, packages, picture, models=models)
    assert seen["answer"], seen["state"]
    _, logits, _ = ours(folder, picture)
    for role, expected in logits.items():
        np.testing.assert_allclose(seen["answer"]["logits"][role], expected, atol=2e-5)


@pytest.mark.exhaustive
@pytest.mark.ort
def test_what_is_no_picture_is_refused_in_a_line(
    exported: Callable[..., Path], packages: Path, tmp_path: Path
) -> None:
    folder = exported("--method", "star")
    (tmp_path / "photo.png").write_text("no picture")
    with served(folder) as address:
        seen = visit(f"{address}{TRY_PAGE}", packages, tmp_path / "photo.png")
    assert seen["answer"] is None and seen["state"].startswith("Not answered: ")
    assert "\n" not in seen["state"]
