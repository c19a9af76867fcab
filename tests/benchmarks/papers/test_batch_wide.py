"""The batch-wide a-STAR of the papers' tables: one count for a batch."""

import pytest
import torch

from exporter.core.base.vocabulary import Method
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from tests.benchmarks.scripts import script
from tests.core.prune.adaptive import RATES
from tests.vits import varied_images

batch_wide = script("papers/batch_wide.py")
batch_count = batch_wide.batch_count


def test_one_count_for_a_batch_depends_on_the_company(tiny_vit: PrunableViT) -> None:
    settings = Prune("intra", method=Method.A_STAR)
    schedule = manual_schedule(tiny_vit.spec, RATES, resolve(settings))
    pruned = batch_wide.BatchWide(tiny_vit, schedule).eval()
    images = varied_images(tiny_vit, 6)
    with torch.inference_mode():
        alone = pruned.patches_left(images[5:])
        together = pruned.patches_left(images)
    assert len({tuple(row) for row in together.tolist()}) == 1
    assert together[5].tolist() != alone[0].tolist()


@pytest.mark.parametrize(
    ("rows", "mass", "expected"),
    [
        # 6, 8, 9, 10: reached at place 1 of one image
        ([[6.0, 2.0, 1.0, 1.0]], 0.7, 1),
        ([[1.0, 6.0, 1.0, 2.0]], 0.95, 3),
        # 6, 8, 9, 10, 16: place 4 of two images
        ([[6.0, 2.0, 1.0, 1.0], [6.0, 2.0, 1.0, 1.0]], 0.7, 2),
        ([[1.0, 1.0]], 0.1, 1),
    ],
)
def test_the_count_of_a_batch_by_hand(
    rows: list[list[float]], mass: float, expected: int
) -> None:
    assert batch_count(torch.tensor(rows), mass) == expected
