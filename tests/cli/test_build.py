"""`star-export build`: what it prints of engines (TensorRT is stood in for), and the plugin's source."""

import importlib.util
from pathlib import Path

import pytest

from exporter.bundled import PLUGIN_SOURCE
from exporter.core.base.targets import TENSORRT
from exporter.engines.manifest import Built
from exporter.serve import build
from tests.commands import Command, succeeded
from tests.engines.fake_tensorrt import fake_tool
from tests.folders import write_folder

HERE = Built("11.4.0.106", "13.0", "580.65", "NVIDIA A100-SXM4-80GB", "8.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "folder", TENSORRT)
    return tmp_path / "folder"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "tool_of", lambda runtime: fake_tool(HERE.tensorrt))
    monkeypatch.setattr(build, "this_machine", lambda version: HERE)


@pytest.mark.usefixtures("machine")
def test_json_has_every_engine(star_export: Command, folder: Path) -> None:
    done = succeeded(star_export("build", folder, "--batches", "1,8", "--json"))
    for engine in done.json:
        assert engine["manifest"]["settings"]["batches"] == [1, 8]
        assert (folder / "engines" / engine["file"]).is_file()
    assert done.json[1]["file"] == "vit.star.tensorrt-fp32.engine"


@pytest.mark.usefixtures("machine")
def test_an_engine_is_named_with_its_machine_(
    star_export: Command, folder: Path
) -> None:
    done = succeeded(star_export("build", folder))
    lines = done.out.splitlines()
    named = [line for line in lines if line.startswith("vit.")]
    models = ["vit.dense", "vit.star", "vit.star", "vit.star"]
    assert [line.partition(".tensorrt-fp32.")[0] for line in named] == models
    assert all(HERE.gpu in line and HERE.tensorrt in line for line in named)
    assert "  batch 1: 2 layers, outputs: 2 × fp32" in lines
    assert "  batch 32: 1 layers, outputs: 1 × fp32" in lines


@pytest.mark.skipif(
    importlib.util.find_spec("tensorrt") is not None, reason="TensorRT is here"
)
def test_without_tensorrt_one_is_told_how_to_get_it(
    star_export: Command, folder: Path
) -> None:
    done = star_export("build", folder, "--batches", "1,16")
    assert (done.code, done.out) == (2, "")
    assert "pip install tensorrt" in done.error and "sh trtexec.sh" in done.error
    script = (folder / "trtexec.sh").read_text().splitlines()
    assert sum(line.startswith("trtexec ") for line in script) == 2 * 2
    # the folder is still whole
    assert star_export("inspect", folder, "--json").code == 0


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_source_is_written_and_the_command_printed(
    star_export: Command, tmp_path: Path
) -> None:
    out = tmp_path / "plugin"
    done = star_export("build", "--plugin-source", out)
    assert (done.code, done.err) == (0, "")
    (command,) = done.out.splitlines()
    assert f"cmake -S {out} " in command
    assert files_below(out) == files_below(PLUGIN_SOURCE)
    told = star_export("build", "--plugin-source", out, "--json").json
    assert told == {"source": str(out), "command": command}
