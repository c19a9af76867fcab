"""From a folder to engines, manifests and trtexec lines; TensorRT is stood in for."""

import json
import shutil
from pathlib import Path

import onnx
import pytest

from exporter.core.base.errors import UserError
from exporter.core.base.files import sha256_of
from exporter.core.base.targets import (
    TENSORRT,
    TENSORRT_FP8,
    Target,
)
from exporter.core.base.tensor_names import INSTRUMENTED, SLICED, instrumented_path
from exporter.core.base.vocabulary import Layout, Method
from exporter.engines.manifest import Built, check_manifest
from exporter.engines.settings import BuildSettings
from exporter.serve import build
from exporter.serve.build import build_folder
from tests.engines.fake_tensorrt import fake_tool
from tests.folders import save_all_checksums, write_folder

HERE = Built("11.4.0.106", "13.0", "580.65", "NVIDIA A100-SXM4-80GB", "8.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "folder", TENSORRT)
    return tmp_path / "folder"


def _call_plugin(*files: Path) -> None:
    for path in files:
        model = onnx.load(path)
        model.graph.node.add(op_type="CdfRetain", domain="star")
        onnx.save(model, path)
    save_all_checksums(files[0].parent)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "tool_of", lambda runtime: fake_tool(HERE.tensorrt))
    monkeypatch.setattr(build, "this_machine", lambda version: HERE)


@pytest.mark.usefixtures("machine")
def test_both_models_and_both_variants(folder: Path) -> None:
    built = build_folder(folder, BuildSettings(batches=(1, 8)))
    assert [each.file.split(".")[1:-1] for each in built] == [
        ["dense", "tensorrt-fp32"],
        ["star", "tensorrt-fp32"],
        *(["star", "tensorrt-fp32", role] for role in INSTRUMENTED),
    ]
    for each in built:
        engine = folder / "engines" / each.file
        assert (
            check_manifest(engine, folder / each.manifest.onnx, HERE) == each.manifest
        )
        assert each.manifest.settings.batches == (1, 8)
        layers = json.loads(engine.with_suffix(".layers.json").read_text())
        first = [profile["Layers"][0]["Name"] for profile in layers["profiles"]]
        assert first == ["gemm 0", "gemm 1"]
        assert [audit.written for audit in each.manifest.audits] == [
            {"fp32": 2},
            {"fp32": 1},
        ]
        assert [audit.fused_kernels for audit in each.manifest.audits] == [1, 0]
        assert not each.slow  # the inspector states no sizes
    assert (folder / "engines/timing.11.4.0.106.sm8.0.cache").is_file()


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("batches", "of_variants"),
    [((1, 4, 8, 32), (1, 8)), ((1, 16), (1,)), ((4, 32), (4,))],
)
def test_variants_have_few_batches(
    folder: Path, batches: tuple[int, ...], of_variants: tuple[int, ...]
) -> None:
    dense, pruned, *variants = build_folder(folder, BuildSettings(batches=batches))
    assert (
        dense.manifest.settings.batches == pruned.manifest.settings.batches == batches
    )
    assert {variant.manifest.settings.batches for variant in variants} == {of_variants}


@pytest.mark.parametrize(
    ("target", "method", "version", "sm", "refusal"),
    [
        (TENSORRT, Method.STAR, "9.3.0", "8.0", "TensorRT 9.3.0 | need 10 or later"),
        (TENSORRT, Method.A_STAR, "10.7.0.23", "8.0", "10.7.0.23 | need 10.8 or later"),
        (TENSORRT, Method.A_STAR, "10.8.0.43", "8.0", ""),
        (
            TENSORRT_FP8,
            Method.STAR,
            "10.5.0.18",
            "9.0",
            "target tensorrt-fp8 | got TensorRT 10.5.0.18 | need 10.6 or later | or "
            "star-export compile --target tensorrt-int8",
        ),
        (
            TENSORRT_FP8,
            Method.STAR,
            "10.7.0.23",
            "8.0",
            "GPU (SM 8.0) | need a GPU of SM 8.9 or later",
        ),
        (TENSORRT_FP8, Method.STAR, "10.7.0.23", "8.9", ""),
        (TENSORRT_FP8, Method.STAR, "11.4.0.106", "12.0", ""),
    ],
)
def test_newer_forms_are_refused_on_what_is_too_old(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: Target,
    method: Method,
    version: str,
    sm: str,
    refusal: str,
) -> None:
    place = tmp_path / "folder"
    write_folder(place, target, method=method)
    here = Built(version, "13.0", "580", "GPU", sm)
    monkeypatch.setattr(build, "tool_of", lambda runtime: fake_tool(version))
    monkeypatch.setattr(build, "this_machine", lambda _: here)
    if not refusal:
        assert build_folder(place, BuildSettings())
        return
    with pytest.raises(UserError) as raised:
        build_folder(place, BuildSettings())
    assert refusal in str(raised.value)
    assert not (place / "engines").exists()


@pytest.mark.usefixtures("machine")
def test_the_sliced_model_and_an_engine_for_each_batch(folder: Path) -> None:
    pruned = next(folder.glob("*.star.*.onnx"))
    shutil.copyfile(
        pruned, instrumented_path(folder / "vit.star.tensorrt-fp32.onnx", SLICED)
    )
    save_all_checksums(folder)
    built = build_folder(folder, BuildSettings(batches=(1, 32), one_profile=True))
    names = [
        engine.file.removeprefix("vit.").replace(".tensorrt-fp32", "")
        for engine in built
    ]
    assert names == [
        "dense.engine",
        "star.engine",
        "star.tracing.engine",
        "star.forced.engine",
        "star.sliced.engine",
        *(
            f"{role}.batch{batch}.engine"
            for role in ("dense", "star")
            for batch in (1, 32)
        ),
    ]
    assert [engine.manifest.settings.batches for engine in built[4:]] == [
        (1, 32),
        (1,),
        (32,),
        (1,),
        (32,),
    ]


@pytest.mark.usefixtures("machine")
def test_tokens_that_shrink_need_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, library = tmp_path / "folder", tmp_path / "lib.so"
    files = write_folder(place, TENSORRT, method=Method.A_STAR, layout=Layout.SHRINKING)
    tracing, forced = (instrumented_path(files.pruned, role) for role in INSTRUMENTED)
    _call_plugin(files.pruned, tracing)
    with pytest.raises(
        UserError,
        match=r"got no plugin .*build --plugin FILE, or star-export compile with layout = \"padded\" in a recipe",
    ):
        build_folder(place, BuildSettings())
    assert not (place / "engines").exists()
    library.write_bytes(b"library")
    monkeypatch.setattr(build, "checked_library", lambda path, version: path)
    built = {
        each.manifest.onnx: each.manifest
        for each in build_folder(place, BuildSettings(plugin=library))
    }
    for each in (files.pruned, tracing):
        assert built[each.name].plugin_sha256 == sha256_of(library)
    for each in (files.dense, forced):
        assert built[each.name].plugin_sha256 == ""
