"""The script that the report shows runs, and prepares an image as the package does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from exporter.core.base.artefact import Artefact, to_metadata
from exporter.core.base.canonical_json import save_json
from exporter.core.base.records import Output, normalise
from exporter.core.base.targets import ONNXRUNTIME, OPENVINO, TENSORRT, Target
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import CropMode, CropRounding, InputKind, OutputKind
from exporter.data.images import ImageFile
from exporter.data.pixels import load_image
from exporter.engines.choice import RunSettings, runner_for
from exporter.report.serving import serving_script
from tests.folders import artefacts
from tests.tiny_onnx import pruned_classifier

SIZES = [(37, 61), (80, 23), (30, 30), (3, 5)]


def made(
    target: Target,
    mode: CropMode,
    input_kind: InputKind,
    rounding: CropRounding = CropRounding.EVEN,
) -> Artefact:
    artefact = artefacts(target, input_kind=input_kind).pruned
    how = replace(artefact.spec.preprocessing, crop_mode=mode, crop_rounding=rounding)
    preprocessing = replace(how, crop_pct=0.7, mean=(0.4, 0.5, 0.6))
    names = tuple(f"class {number}" for number in range(artefact.spec.num_classes))
    return replace(
        artefact,
        spec=replace(artefact.spec, preprocessing=preprocessing, class_names=names),
    )


def write(artefact: Artefact, photo: Path, size: tuple[int, int]) -> None:
    """The model, what a folder says beside it, and a photo."""
    content = pruned_classifier("", artefact.input_kind, to_metadata(artefact))
    (photo.parent / "model.onnx").write_bytes(content)
    save_json(artefact.spec, photo.parent / "model.json")
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(noise).save(photo)


def logits_of(artefact: Artefact, photo: Path) -> np.ndarray:
    """What the package itself computes."""
    loaded = load_image(ImageFile(photo, None), artefact.spec.preprocessing)
    pixels = loaded.pixels[None]
    if artefact.input_kind == InputKind.FLOAT32:
        pixels = normalise(pixels, artefact.spec.preprocessing)
    with runner_for(
        photo.parent / "model.onnx", artefact.target, RunSettings(threads=1)
    ) as runner:
        return runner.run({IMAGES: pixels})["logits"][0]


def expected(artefact: Artefact, photo: Path) -> list[str]:
    logits = logits_of(artefact, photo)
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    best = shares.argsort()[::-1][:5]
    return [
        f"{artefact.spec.class_names[at]} {round(float(shares[at]), 4)}" for at in best
    ]


def printed(
    script: str,
    photo: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    monkeypatch.chdir(photo.parent)
    monkeypatch.setattr("sys.argv", ["serve.py", photo.name])
    exec(compile(script, "serve.py", "exec"), {})
    return capsys.readouterr().out


@pytest.mark.ort
@pytest.mark.parametrize("mode", CropMode)
@pytest.mark.parametrize("input_kind", InputKind)
@pytest.mark.parametrize("rounding", CropRounding)
@pytest.mark.parametrize("size", SIZES)
def test_it_says_what_the_package_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: CropMode,
    input_kind: InputKind,
    rounding: CropRounding,
    size: tuple[int, int],
) -> None:
    artefact = made(ONNXRUNTIME, mode, input_kind, rounding)
    photo = tmp_path / "photo.png"
    write(artefact, photo, size)
    script = serving_script(artefact, "model.onnx")
    assert script == serving_script(
        made(ONNXRUNTIME, CropMode.CENTER, input_kind), "model.onnx"
    )
    assert "exporter" not in script and len(script.splitlines()) < 55
    assert printed(script, photo, monkeypatch, capsys).splitlines() == expected(
        artefact, photo
    )


def test_grey_that_it_would_clip_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artefact = made(ONNXRUNTIME, CropMode.CENTER, InputKind.UINT8)
    photo = tmp_path / "photo.png"
    write(artefact, photo, (40, 50))
    Image.fromarray(np.full((40, 50), 300, np.uint16)).save(photo)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["serve.py", photo.name])
    names: dict[str, Any] = {}
    with pytest.raises(SystemExit, match="more than 8 bits"):
        exec(compile(serving_script(artefact, "model.onnx"), "serve.py", "exec"), names)
    names["image"].close()


def test_openvino(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("openvino")
    artefact = made(OPENVINO, CropMode.CENTER, InputKind.FLOAT32)
    photo = tmp_path / "photo.png"
    write(artefact, photo, (40, 50))
    told = printed(serving_script(artefact, "model.onnx"), photo, monkeypatch, capsys)
    assert told.splitlines() == expected(artefact, photo)


@pytest.mark.parametrize("kind", [OutputKind.LABELS, OutputKind.VALUES])
def test_numbers_are_printed_as_what_they_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: OutputKind,
) -> None:
    """A single logit is the only label."""
    artefact = made(ONNXRUNTIME, CropMode.CENTER, InputKind.FLOAT32)

    def headed(kind: OutputKind, numbers: int) -> Artefact:
        outputs = (Output("logits", kind, numbers),)
        return replace(artefact, spec=replace(artefact.spec, outputs=outputs))

    several, photo = headed(kind, artefact.spec.num_classes), tmp_path / "photo.png"
    write(several, photo, (40, 50))
    script = serving_script(several, "model.onnx")
    rows = [
        line.split()
        for line in printed(script, photo, monkeypatch, capsys).splitlines()
    ]
    values = logits_of(several, photo)
    if kind == OutputKind.LABELS:
        assert [row[-2] == "yes" for row in rows] == (values > 0).tolist()
        assert serving_script(headed(OutputKind.LOGITS, 1), "model.onnx") == script
        values = 1 / (1 + np.exp(-values))
    assert [float(row[-1]) for row in rows] == pytest.approx(values.tolist(), abs=1e-4)


def test_a_tower_gives_its_values_and_an_engine_has_no_script() -> None:
    artefact = artefacts().pruned
    tower = replace(
        artefact.spec, outputs=(Output("embedding", OutputKind.EMBEDDING, 4),)
    )
    script = serving_script(replace(artefact, spec=tower), "model.onnx")
    assert 'session.run(["embedding"]' in script and "shares" not in script
    assert serving_script(replace(artefact, target=TENSORRT), "model.onnx") == ""
