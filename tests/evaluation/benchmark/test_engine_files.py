"""Which engine runs which batch size."""

from pathlib import Path

import pytest

from exporter.errors import ArtefactError, UserError
from exporter.evaluation.benchmark.engine_files import Engines, engine_files
from exporter.formats.canonical_json import save_json
from exporter.runtimes.tensorrt.manifest import engine_path, manifest_path
from tests.runtimes.tensorrt.fake_cuda import BUILT, manifest


def write(onnx: Path, batch: int = 0) -> None:
    engine = engine_path(onnx.parent / "engines", onnx, batch)
    engine.parent.mkdir(exist_ok=True)
    engine.write_bytes(b"plan")
    save_json(manifest(batches=(batch,) if batch else (1, 8)), manifest_path(engine))


def test_one_engine_for_all_batches_or_one_for_each(tmp_path: Path) -> None:
    onnx = tmp_path / "vit.dense.onnx"
    for batch in (0, 1, 8):
        write(onnx, batch)
    for one_profile, names in ((False, {"vit.dense"}), (True, {"vit.dense.batch1", "vit.dense.batch8"})):
        found = engine_files(onnx, (1, 8), one_profile=one_profile)
        assert {each.path.stem for each in found.values()} == names
        assert all(batch in each.manifest.batches for batch, each in found.items())


def test_the_engines_of_a_batch_by_role(tmp_path: Path) -> None:
    paths = [tmp_path / f"vit.{role}.onnx" for role in ("dense", "pruned", "sliced")]
    for path in paths:
        write(path)
    found = [engine_files(path, (1, 8)) for path in paths]
    two, three = Engines(*found[:2]), Engines(*found)
    assert list(two.at(8)) == ["dense", "pruned"]
    assert [each.onnx for each in three.at(1).values()] == paths
    assert (three.folder, three.built) == (tmp_path, BUILT)


def test_a_batch_without_a_profile_is_refused_at_once(tmp_path: Path) -> None:
    onnx = tmp_path / "vit.dense.onnx"
    write(onnx)
    with pytest.raises(UserError, match=r"batch \| got 4 \| need one of 1, 8 \| build --batches 4"):
        engine_files(onnx, (1, 4))
    with pytest.raises(ArtefactError, match=r"batch1\.engine"):
        engine_files(onnx, (1, 8), one_profile=True)
