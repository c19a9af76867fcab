"""A machine is described without loading a library; a job is named by all that it depends on."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from exporter.core.base import machine
from exporter.core.base.canonical_json import from_json, to_json
from exporter.core.base.machine import (
    VNNI,
    cpu_lacks,
    cpu_quota,
    environment,
    job_identity,
    within_quota,
)
from exporter.core.verify import onnxruntime_runner
from exporter.core.verify.openvino_runner import OpenVinoRunner
from tests.commands import Command


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
    assert here.threads == 2
    assert here.usable_cpus >= 1
    assert here.cpu_model
    assert here.cpu_quota is not None or len(here.cpus) in (0, here.usable_cpus)
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


# The lines of /proc/self/cgroup, the files of groups, and the CPUs that they allow of eight.
UNIFIED = "0::/"
CONTAINERS: dict[str, tuple[str, dict[str, str], float | None]] = {
    "version 2": (UNIFIED, {"cpu.max": "200000 100000"}, 2.0),
    "version 2, no limit": (UNIFIED, {"cpu.max": "max 100000"}, None),
    "a group above has less": (
        "0::/pod/app",
        {
            "cpu.max": "max 100000",
            "pod/cpu.max": "150000 100000",
            "pod/app/cpu.max": "4 1",
        },
        1.5,
    ),
    "half a CPU": (UNIFIED, {"cpu.max": "50000 100000"}, 0.5),
    "version 1": (
        "4:memory:/a\n3:cpu,cpuacct:/docker/1",
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "300000",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        3.0,
    ),
    "version 1, no limit": (
        "3:cpu:/",
        {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
        None,
    ),
    "both": (
        "1:cpu:/x\n0::/",
        {"cpu/x/cpu.cfs_quota_us": "400000", "cpu/x/cpu.cfs_period_us": "100000"},
        4.0,
    ),
    "more than there are": (UNIFIED, {"cpu.max": "1600000 100000"}, 16.0),
    "something else": (UNIFIED, {"cpu.max": "?"}, None),
    "no files": ("0::/a", {}, None),
    "no groups": ("", {}, None),
}


@pytest.fixture
def container(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> float | None:
    """A machine of eight CPUs, of which the groups of a container allow some."""
    membership, files, quota = CONTAINERS[request.param]
    (tmp_path / "membership").write_text(membership)
    for name, content in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    monkeypatch.setattr(machine, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_affinity", lambda: tuple(range(8)))
    return quota


@pytest.mark.parametrize("container", CONTAINERS, indirect=True)
def test_threads_follow_the_quota_of_a_container(container: float | None) -> None:
    here = environment()
    assert here.cpu_quota == cpu_quota() == container
    is_limited = container is not None and container < 8
    expected = max(1, int(container)) if container is not None and is_limited else 0
    assert within_quota() == expected
    assert here.usable_cpus == (expected or 8)
    assert within_quota(5) == 5


@pytest.mark.parametrize("container", ["version 2"], indirect=True)
def test_every_runtime_has_as_many_threads_as_the_quota_allows(
    container: float, star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    assert onnxruntime_runner._options(onnxruntime, 0).intra_op_num_threads == container
    assert onnxruntime_runner._options(onnxruntime, 3).intra_op_num_threads == 3
    assert OpenVinoRunner(b"")._threads == container
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("OMP_NUM_THREADS")
    star_export("models", "--why", "digits_vit")
    assert os.environ["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    star_export("models", "--why", "digits_vit")
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_threads_do_not_spin_while_they_wait_unless_the_caller_says_so(
    star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    star_export("models", "--why", "digits_vit")
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    star_export("models", "--why", "digits_vit")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
