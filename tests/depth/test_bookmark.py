"""The state of a search is read back bit for bit, is a checkpoint, and is no other search's."""

from pathlib import Path

import pytest

from exporter.depth.bookmark import Bookmark
from exporter.depth.checkpoint import read_depth
from exporter.depth.gates import Importance
from exporter.depth.plan import DepthPlan
from exporter.depth.ranked import RankedViT
from exporter.depth.skipped import Skipped
from exporter.depth.surgery import apply_plan
from exporter.errors import ArtefactError
from exporter.models.identity import Identity
from tests.depth.models import seeded_vit

IDENTITY = Identity("seeded", "deit_tiny_patch16_224")
PLAN = DepthPlan((2,), (1, 3))
IMPORTANCE = Importance((0.1, -0.2, 1 / 3, 0.0), (0.0, 1e-9, -1.0, 2.0))


@pytest.fixture
def bookmark(tmp_path: Path) -> Bookmark:
    vit = apply_plan(seeded_vit(), PLAN, unmerged=True)
    skipped = Skipped(training={"a.png": "torn"}, evaluation={"b.png": "torn"})
    made = Bookmark(tmp_path / "last.safetensors", IDENTITY, "settings", skipped)
    made.write(3, RankedViT(vit, PLAN, IMPORTANCE))
    return made


def test_it_is_read_back(bookmark: Bookmark) -> None:
    found = bookmark.read(seeded_vit())
    assert found is not None
    stages, ranked = found
    assert (stages, ranked.plan, ranked.importance) == (3, PLAN, IMPORTANCE)
    assert ranked.vit.weights_sha256 == apply_plan(seeded_vit(), PLAN, unmerged=True).weights_sha256
    depth = read_depth(bookmark.path)
    assert depth is not None and (depth.plan, depth.merged) == (PLAN, False)


def test_what_earlier_stages_skipped_is_added(bookmark: Bookmark) -> None:
    own = Skipped(training={"c.png": "gone"}, evaluation={"d.png": "gone"})
    Bookmark(bookmark.path, IDENTITY, "settings", own).read(seeded_vit())
    assert (sorted(own.training), list(own.evaluation)) == (["a.png", "c.png"], ["d.png", "b.png"])


def test_without_a_file_there_is_none(tmp_path: Path) -> None:
    assert Bookmark(tmp_path / "none.safetensors", IDENTITY, "settings").read(seeded_vit()) is None


def test_another_search_or_file_is_refused(bookmark: Bookmark, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"a search of other settings.*delete it to start again"):
        Bookmark(bookmark.path, IDENTITY, "other settings").read(seeded_vit())
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"something else")
    with pytest.raises(ArtefactError, match=r"other\.safetensors \| got another file"):
        Bookmark(other, IDENTITY, "settings").read(seeded_vit())
