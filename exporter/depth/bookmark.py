"""Where a search for units has arrived, as a checkpoint: a search that was killed continues there."""

from dataclasses import dataclass, field
from pathlib import Path

from exporter.depth.checkpoint import Depth, read_depth, save_checkpoint
from exporter.depth.gates import Importance
from exporter.depth.ranked import RankedViT
from exporter.depth.skipped import Skipped
from exporter.depth.surgery import apply_plan
from exporter.errors import ArtefactError
from exporter.files import START_AGAIN, require_same_job
from exporter.formats.canonical_json import from_json
from exporter.models.base import PrunableViT
from exporter.models.identity import Identity, read_metadata
from exporter.models.weights import load_into, read_state_dict

__all__ = ["Bookmark"]

SEARCH = "search"


@dataclass(frozen=True)
class _Mark:
    """The settings and inputs of a search, the stages that are done, and the importance that they learned.

    `skipped` has the images that they could not read.
    """

    run: str
    stages: int
    importance: Importance
    skipped: Skipped = field(default_factory=Skipped)


@dataclass(frozen=True)
class Bookmark:
    """The state of a search after its last whole stage.

    `path` ends in .safetensors; `identity` says how to build the whole network; `run` has the settings and inputs
    of the search as text. `skipped` is filled by whoever reads images: it is written with the state, and what
    earlier stages skipped is added when that is read.
    """

    path: Path
    identity: Identity
    run: str
    skipped: Skipped = field(default_factory=Skipped)

    def write(self, stages: int, ranked: RankedViT) -> None:
        """Replace the state by that after so many stages.

        Raises:
            OutputError: The file cannot be written.
        """
        mark = _Mark(self.run, stages, ranked.importance, self.skipped)
        depth = Depth(ranked.plan, merged=False)
        save_checkpoint(ranked.vit, self.identity, depth, self.path, **{SEARCH: mark})

    def read(self, vit: PrunableViT) -> tuple[int, RankedViT] | None:
        """Return the number of stages done and what they led to, None where there is no file.

        Args:
            vit: What the search started from.

        Raises:
            ArtefactError: The file is broken, or of another search.
        """
        if not self.path.exists():
            return None
        told, depth = read_metadata(self.path).get(SEARCH), read_depth(self.path)
        mark = None if told is None else from_json(_Mark, told, source=str(self.path))
        if mark is None or depth is None:
            raise ArtefactError(str(self.path), "another file", "that of an unfinished search", START_AGAIN)
        require_same_job(self.path, "a search", mark.run, self.run)
        self.skipped.update(mark.skipped)
        pruned = apply_plan(vit, depth.plan, unmerged=True)
        load_into(pruned.model, read_state_dict(self.path), str(self.path))
        # Nothing more is removed; the digest is that of the loaded weights.
        restored = apply_plan(pruned, depth.plan, unmerged=True)
        return mark.stages, RankedViT(restored, depth.plan, mark.importance)
