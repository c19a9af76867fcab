"""A machine is described without loading a library; a job is named by all that it depends on."""

import sys
from pathlib import Path

import numpy as np
import pytest

from exporter import machine
from exporter.formats.canonical_json import from_json, to_json
from exporter.machine import VNNI, cpu_lacks, environment, job_identity


def test_a_job_depends_on_settings_models_images_and_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [
        job_identity(1, models=["a"], images=["b"]),
        job_identity(2, models=["a"], images=["b"]),
        job_identity(1, models=["c"], images=["b"]),
        job_identity(1, models=["a"], images=["d"]),
    ]
    assert job_identity(1, models=["a"], images=["b"]) == jobs[0]
    monkeypatch.setattr(machine, "version", lambda library: "0")
    jobs.append(job_identity(1, models=["a"], images=["b"]))
    assert len(set(jobs)) == 5


def test_the_environment_names_what_is_loaded_and_loads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    here = environment(threads=2)
    assert "torch" not in here.versions
    assert {"torch", "timm", "onnx"} <= environment(installed=True).versions.keys()
    assert here.versions["numpy"] == np.__version__
    assert (here.threads, here.usable_cpus >= 1, bool(here.cpu_model)) == (2, True, True)
    assert len(here.cpus) in (0, here.usable_cpus)
    assert from_json(type(here), to_json(here), source="here") == here


def test_the_cpu_model_is_found_or_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "CPUINFO", cpuinfo)
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    assert environment().cpu_model == "Some CPU @ 2 GHz"
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    cpuinfo.write_text("processor\t: 0\n")
    assert environment().cpu_model == "aarch64"
    cpuinfo.unlink()
    assert environment().cpu_model == "aarch64"


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ("flags\t\t: fpu sse4_2 avx2 fma", True),
        ("flags\t\t: fpu avx2 avx512f avx512_bf16", True),
        ("flags\t\t: fpu avx2 avx512f avx512_vnni", False),
        ("flags\t\t: fpu avx2 avx_vnni", False),
        ("flags\t\t: fpu avx2 avx512f amx_int8", False),
        ("Features\t: fp asimd asimddp", False),
        (None, False),
    ],
)
def test_a_cpu_lacks_vnni_where_linux_says_so(
    line: str | None, lacks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    if line is not None:
        cpuinfo.write_text(f"processor\t: 0\n{line}\nvmx flags\t: avx512_vnni\n")
    monkeypatch.setattr(machine, "CPUINFO", cpuinfo)
    assert cpu_lacks(*VNNI) == lacks
