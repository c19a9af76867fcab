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


TAKEN = ["accepted, no line"]
NO_MASS = ["refused, star: mass | got none | need one float32"]
TOO_MANY = "refused, star: score | got 4097 patches | need at most 4096"
FLOAT32, INT64 = "0", "8"  # nvinfer1::DataType; one format each, the linear one
# What it is asked, and its answers.
EXPECTED: dict[str, list[str]] = {
    # It is looked up by name, version and namespace.
    "creators": ["1"],
    "kind": ["PLUGIN CREATOR_V3ONE"],
    "name": ["CdfRetain"],
    "version": ["1"],
    "namespace": ["star"],
    "field": ["mass float32", "widest int32"],
    "mass 0.500000": TAKEN,
    "mass 1.000000": TAKEN,
    **{
        f"mass {mass}": [f"refused, star: mass | got {got} | need a share in (0, 1]"]
        for mass, got in (
            ("0.000000", "0"),
            ("-0.500000", "-0.5"),
            ("1.500000", "1.5"),
            ("nan", "nan"),
        )
    },
    "no mass": NO_MASS,
    "mass of another type": NO_MASS,
    "shapes": ["told"],
    "outputs": ["3"],
    "shape": ["B | size(2, opt ceil_div(N, 2), upper N)", "B", ""],
    "width is a size tensor": ["yes"],
    **{f"widest {count}": TAKEN for count in (0, 1, 4096)},
    **{
        f"widest {count}": [
            f"refused, star: widest | got {count} | need a count from 1 to 4096, or 0 for none"
        ]
        for count in (-1, 4097)
    },
    # A known count bounds the memory: no expression of N, a size tensor itself in all layers but the first.
    "bounded": ["size(2, opt 138, upper 138)"],
    "too wide": ["refused, star: widest | got 138 for 198 patches | need at least 139"],
    "4096 patches": TAKEN,
    "4097 patches": [TOO_MANY],
    "rank 3": [
        "refused, star: shapes | got score of rank 3, valid_count of rank 1 | "
        "need score [B, N], valid_count [B]"
    ],
    "configure": [*TAKEN, TOO_MANY],
    "shape change": [*TAKEN, TOO_MANY],
    "enqueue": [
        "refused, star: launch | got cudaErrorInvalidValue for score [1, 4097]"
    ],
    "types": ["told"],
    "type": ["int64"] * 3,
    "accepts": [FLOAT32, *[INT64] * 4],
    # An index a patch.
    "workspace": [str(128 * 196 * 4), str(4097 * 4)],
    # Copies live on without their original.
    "stored": ["0.700000/138 0.700000/138 0.700000/138"],
    "plugin": ["star::CdfRetain 1"],
}


@pytest.mark.parametrize("asked", EXPECTED)
def test_what_it_declares_accepts_and_refuses_in_one_line(
    answers: Answers, asked: str
) -> None:
    assert answers[asked] == EXPECTED[asked]


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
