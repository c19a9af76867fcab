"""What is cached for later runs is not that of other kernels."""

from pathlib import Path

import pytest

from tests import disk_cache


def test_other_sums_have_another_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in disk_cache.SUMS:
        monkeypatch.delenv(name, raising=False)
    keys = [disk_cache._key()]
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    keys.append(disk_cache._key())
    another_cpu = tmp_path / "cpuinfo"
    another_cpu.write_text("flags\t: fpu avx2\n")
    monkeypatch.setattr(disk_cache, "CPUINFO", another_cpu)
    keys.append(disk_cache._key())
    assert len(set(keys)) == len(keys)
