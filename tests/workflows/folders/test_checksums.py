"""`SHA256SUMS`: what is listed is whole, and nothing outside the folder is listed."""

from pathlib import Path

import pytest

from exporter.errors import ArtefactError, OutputError
from exporter.workflows.folders.export_folder import read_checksums, save_checksums, verify_checksums


def test_checksums(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="SHA256SUMS"):
        verify_checksums(tmp_path)
    (tmp_path / "a").write_text("a")
    save_checksums(tmp_path, ["a"])
    assert set(verify_checksums(tmp_path)) == {"a"}
    (tmp_path / "a").write_text("b")
    with pytest.raises(ArtefactError, match=r"a \| got sha256 .* of SHA256SUMS \| copy it again"):
        verify_checksums(tmp_path)
    (tmp_path / "a").unlink()
    with pytest.raises(ArtefactError, match="no such file"):
        verify_checksums(tmp_path)
    (tmp_path / "SHA256SUMS").write_text("nonsense")
    with pytest.raises(ArtefactError, match="SHA256SUMS"):
        verify_checksums(tmp_path)
    (tmp_path / "SHA256SUMS").write_text("")
    with pytest.raises(ArtefactError, match="an empty list"):
        verify_checksums(tmp_path)


def test_a_file_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    save_checksums(tmp_path, ["a"])
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(f"{sums.read_text()}{'0' * 64}  ../passwd\n")
    for read in (read_checksums, verify_checksums):
        with pytest.raises(ArtefactError, match="outside the folder"):
            read(tmp_path)


def test_a_file_that_is_gone_has_no_sum(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="another command"):
        save_checksums(tmp_path, ["a"])
    assert list(tmp_path.iterdir()) == []
