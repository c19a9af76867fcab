"""Engines of a folder built by TensorRT for RTX, without a GPU, and what they are refused for."""

import importlib
import json
import re
from pathlib import Path

import pytest

from exporter.cli.main import main
from exporter.core.base.errors import RecipeError, UserError
from exporter.core.base.files import sha256_of
from exporter.core.base.targets import RTX, TENSORRT, TENSORRT_FP16
from exporter.core.base.tensor_names import INSTRUMENTED
from exporter.core.base.vocabulary import Layout, Method
from exporter.engines.choice import RunSettings, runner_for
from exporter.engines.manifest import check_manifest, read_manifest
from exporter.engines.settings import BuildSettings
from exporter.engines.tool import tool_of
from exporter.jobs.inspect import inspect_artefact
from exporter.serve.build import build_folder
from exporter.serve.export_folder import read_checksums
from tests.folders import write_folder

pytestmark = pytest.mark.trt


@pytest.fixture(autouse=True)
def _installed() -> None:
    for library in ("tensorrt_rtx", "polygraphy"):
        pytest.importorskip(library, reason="needs star-export[tensorrt-rtx]")


def settings(*sm: int, **more: object) -> BuildSettings:
    return BuildSettings(runtime="tensorrt-rtx", sm=sm, batches=(1, 4), **more)  # type: ignore[arg-type]


@pytest.mark.exhaustive
def test_a_folder_for_two_cards_is_complete(tmp_path: Path) -> None:
    write_folder(tmp_path, TENSORRT)
    built = build_folder(tmp_path, settings(80, 120))
    models = [
        f"vit.{name}"
        for name in (
            "dense.{}",
            "star.{}",
            *(f"star.{{}}.{role}" for role in INSTRUMENTED),
        )
    ]
    names = [
        f"{model.format(TENSORRT.name)}.rtx-sm{sm}.engine"
        for sm in (80, 120)
        for model in models
    ]
    assert [each.file for each in built] == names
    shipped = (*built[:2], *built[4:6])
    for each, sm in zip(shipped, ("8.0", "8.0", "12.0", "12.0"), strict=True):
        engine = tmp_path / "engines" / each.file
        manifest = read_manifest(engine)
        assert (
            check_manifest(engine, tmp_path / manifest.onnx, manifest.built)
            == manifest
            == each.manifest
        )
        assert manifest.settings.runtime == "tensorrt-rtx"
        assert manifest.built.sm == sm
        assert manifest.built.gpu == ""
        assert len(manifest.audits) == 2
        assert inspect_artefact(engine)["audits"][0]["memory_bytes"] > 0
        assert not each.broken  # fp32 promises no fused attention
        card = "A100" if sm == "8.0" else "RTX 5090"
        estimates = [audit.estimated_ms[card] for audit in manifest.audits]
        assert estimates == sorted(estimates)
        # Of so small a model, steps are all that counts.
        assert len(each.slow) == (2 if "star" in each.file else 0)
    assert [
        (tmp_path / f"inputs/images.batch{batch}.bin").is_file() for batch in (1, 4)
    ] == [True, True]


@pytest.mark.exhaustive
def test_its_folder_is_read_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `inspect`, and up to the missing GPU by `check` and `bench`; the checksums have all that is copied."""
    write_folder(tmp_path, TENSORRT)
    build_folder(tmp_path, settings(80))
    assert "does not list: running there is not promised" in caplog.text
    listed = read_checksums(tmp_path)
    files = {
        path.relative_to(tmp_path).as_posix()
        for place in ("engines", "inputs")
        for path in (tmp_path / place).iterdir()
    }
    assert files <= listed.keys()
    for name, digest in listed.items():
        assert sha256_of(tmp_path / name) == digest
    for engine in (tmp_path / "engines").glob("*.engine"):
        assert main(["inspect", str(engine), "--json"]) == 0
    capsys.readouterr()
    for verb in ("check", "bench"):
        assert main([verb, str(tmp_path), "--runtime", "tensorrt-rtx", "--quiet"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(r"GPU \| got (no libcuda|a driver without)", line)


@pytest.mark.exhaustive
def test_a_promise_that_is_not_kept_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No fused kernel has so few channels a head."""
    write_folder(tmp_path, TENSORRT_FP16)
    flags = ("--runtime", "tensorrt-rtx", "--sm", "86", "--batches", "1,4", "--quiet")
    assert main(["build", str(tmp_path), *flags]) == 1
    said = capsys.readouterr().out
    assert "vit.star.tensorrt-fp16.rtx-sm86.engine: TensorRT for RTX" in said
    assert (
        "rtx-sm86.engine: batch 1, 4: attention is not fused in block 1, 2, 3, 4"
        in said
    )
    assert re.search(r"batch 4: estimated, not measured: 0\.\d\d ms on A10\n", said)
    assert "batch 4: pruning is not expected to pay on A10: 0." in said
    assert json.loads(
        (tmp_path / "engines/vit.star.tensorrt-fp16.rtx-sm86.json").read_text()
    )["audits"]


def test_shrinking_is_refused_with_padded_as_the_way_out(tmp_path: Path) -> None:
    write_folder(tmp_path, TENSORRT, method=Method.A_STAR, layout=Layout.SHRINKING)
    with pytest.raises(
        UserError,
        match=r"takes none of \| need layout padded: fused attention is lost.*layout = ",
    ):
        build_folder(tmp_path, settings(80))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sm": ()}, "sm | got ()"),
        ({"sm": (90,)}, "sm | got (90,)"),
        ({"hardware": "ampere-plus"}, "hardware | got 'ampere-plus'"),
        ({"version_compatible": True}, "version_compatible | got True"),
        ({"plugin": Path("lib.so")}, "plugin | got"),
        ({"runtime": "tensorrt"}, "sm | got (80,)"),
    ],
)
def test_what_it_has_not_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError) as raised:
        BuildSettings(**{"runtime": "tensorrt-rtx", "sm": (80,), **wrong})  # type: ignore[arg-type]
    assert str(raised.value).startswith(message)


def test_its_engines_have_a_runner_which_needs_a_gpu(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"GPU|no such file"),
        runner_for(tmp_path / "m.onnx", TENSORRT, RunSettings(runtime="tensorrt-rtx")),
    ):
        pass


@pytest.mark.exhaustive
def test_polygraphy_runs_them() -> None:
    tool = tool_of(RTX)
    module = importlib.import_module("polygraphy.backend.trt.runner")
    assert module.trt.IExecutionContext is tool.trt.IExecutionContext
    tool.polygraphy.TrtRunner(None)


def test_what_a_run_needs_is_in_its_bindings() -> None:
    rtx = pytest.importorskip("tensorrt_rtx")
    names = {
        rtx.ICudaEngine: ("create_runtime_config", "create_execution_context"),
        rtx.IRuntimeConfig: (
            "create_runtime_cache",
            "set_runtime_cache",
            "cuda_graph_strategy",
        ),
        rtx.IRuntimeCache: ("serialize", "deserialize"),
        rtx.IExecutionContext: ("nvtx_verbosity",),
        rtx.CudaGraphStrategy: ("WHOLE_GRAPH_CAPTURE",),
        rtx.Runtime: ("engine_host_code_allowed", "deserialize_cuda_engine"),
    }
    for kind, members in names.items():
        assert [name for name in members if not hasattr(kind, name)] == []
