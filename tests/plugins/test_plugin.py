"""The TensorRT plugin on a machine that has neither TensorRT nor a GPU: what it declares, accepts and refuses."""

import shutil
import subprocess
from pathlib import Path

import pytest

from exporter.core.base.errors import ArtefactError
from exporter.engines.plugin_library import checked_library
from tests.plugins.builds import configure

Answers = dict[str, list[str]]


@pytest.fixture(scope="module")
def answers(plugin_library: Path) -> Answers:
    """What checks/plugin_host.cpp hears from the plugin, by key, in order."""
    host = plugin_library.parent / "plugin_host"
    done = subprocess.run(
        [host, plugin_library], check=True, capture_output=True, text=True
    )
    found: Answers = {}
    for line in done.stdout.splitlines():
        key, value = line.split(": ", 1)
        found.setdefault(key, []).append(value.strip())
    return found


def test_the_creator_is_looked_up_by_name_version_and_namespace(
    answers: Answers,
) -> None:
    told = {
        key: answers[key]
        for key in ("creators", "kind", "name", "version", "namespace", "field")
    }
    assert told == {
        "creators": ["1"],
        "kind": ["PLUGIN CREATOR_V3ONE"],
        "name": ["CdfRetain"],
        "version": ["1"],
        "namespace": ["star"],
        "field": ["mass float32", "widest int32"],
    }


@pytest.mark.parametrize(
    ("mass", "got"),
    {"0.000000": "0", "-0.500000": "-0.5", "1.500000": "1.5", "nan": "nan"}.items(),
)
def test_mass_out_of_range_is_refused_in_one_line(
    answers: Answers, mass: str, got: str
) -> None:
    assert answers[f"mass {mass}"] == [
        f"refused, star: mass | got {got} | need a share in (0, 1]"
    ]


def test_a_mass_in_range_is_taken(answers: Answers) -> None:
    assert answers["mass 0.500000"] == answers["mass 1.000000"] == ["accepted, no line"]


def test_a_missing_mass_is_refused_in_one_line(answers: Answers) -> None:
    line = "refused, star: mass | got none | need one float32"
    assert answers["no mass"] == answers["mass of another type"] == [line]


def test_shapes(answers: Answers) -> None:
    assert answers["shapes"] == ["told"]
    assert answers["outputs"] == ["3"]
    assert answers["shape"] == ["B | size(2, opt ceil_div(N, 2), upper N)", "B", ""]
    assert answers["width is a size tensor"] == ["yes"]


@pytest.mark.parametrize("widest", [0, 1, 4096])
def test_a_count_in_range_is_taken(answers: Answers, widest: int) -> None:
    assert answers[f"widest {widest}"] == ["accepted, no line"]


@pytest.mark.parametrize("widest", [-1, 4097])
def test_a_count_out_of_range_is_refused_in_one_line(
    answers: Answers, widest: int
) -> None:
    line = f"refused, star: widest | got {widest} | need a count from 1 to 4096, or 0 for none"
    assert answers[f"widest {widest}"] == [line]


def test_a_known_count_is_tuned_for_and_bounds_the_memory(answers: Answers) -> None:
    """No expression of N, which is a size tensor itself in all layers but the first."""
    assert answers["bounded"] == ["size(2, opt 138, upper 138)"]
    assert answers["too wide"] == [
        "refused, star: widest | got 138 for 198 patches | need at least 139"
    ]


def test_shapes_out_of_range_are_refused_in_one_line(answers: Answers) -> None:
    too_many = "refused, star: score | got 4097 patches | need at most 4096"
    assert answers["4096 patches"] == ["accepted, no line"]
    assert answers["4097 patches"] == [too_many]
    assert answers["rank 3"] == [
        "refused, star: shapes | got score of rank 3, valid_count of rank 1 | "
        "need score [B, N], valid_count [B]"
    ]
    assert (
        answers["configure"]
        == answers["shape change"]
        == ["accepted, no line", too_many]
    )
    assert answers["enqueue"] == [
        "refused, star: launch | got cudaErrorInvalidValue for score [1, 4097]"
    ]


def test_types_and_formats(answers: Answers) -> None:
    assert answers["types"] == ["told"]
    assert answers["type"] == ["int64"] * 3
    float32, int64 = "0", "8"  # nvinfer1::DataType; one format each, the linear one
    assert answers["accepts"] == [float32, int64, int64, int64, int64]


def test_workspace_holds_an_index_a_patch(answers: Answers) -> None:
    assert answers["workspace"] == [str(128 * 196 * 4), str(4097 * 4)]


def test_copies_live_on_without_their_original(answers: Answers) -> None:
    assert answers["stored"] == ["0.700000/138 0.700000/138 0.700000/138"]
    assert answers["plugin"] == ["star::CdfRetain 1"]


def test_no_symbol_is_wanted_from_tensorrt(plugin_library: Path) -> None:
    symbols = subprocess.run(
        ["nm", "-D", plugin_library], check=True, capture_output=True, text=True
    ).stdout
    exported = {line.split()[-1] for line in symbols.splitlines() if " T " in line}
    assert exported == {"getCreators", "setLoggerFinder", "cdfRetainTensorRtMajor"}
    wanted = [
        line
        for line in symbols.splitlines()
        if " U " in line and ("nvinfer" in line or "Infer" in line)
    ]
    assert wanted == []


def test_without_headers_the_build_says_what_it_skips(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    (line,) = (
        line
        for line in configure(tmp_path, None).splitlines()
        if "star_plugins: " in line
    )
    assert line in (
        '-- star_plugins: no NvInferRuntime.h in TENSORRT_INCLUDE_DIR (""): skipping the plugin',
        "-- star_plugins: no CUDA compiler: building the host library alone",
    )


def test_it_says_whose_headers_it_has(
    plugin_library: Path, tensorrt_headers: Path
) -> None:
    lines = (tensorrt_headers / "NvInferVersion.h").read_text().splitlines()
    defined = {
        words[1]: words[2]
        for words in map(str.split, lines)
        if words[:1] == ["#define"] and words[2:]
    }
    major = defined["NV_TENSORRT_MAJOR"]
    major = defined.get(major, major)
    assert checked_library(plugin_library, f"{major}.7.0") == plugin_library
    with pytest.raises(ArtefactError, match="headers of TensorRT"):
        checked_library(plugin_library, f"{int(major) + 1}.0.0")
