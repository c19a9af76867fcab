"""The search of counts: deterministic, no dearer than asked for, and honest on images that it did not read."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from exporter.errors import ImageError
from exporter.models.base import PrunableViT
from exporter.pruning.count_search import FoundCounts, search_counts
from exporter.pruning.divergence import divergences
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.schedule.plan import keep_everything
from exporter.schedule.policy import resolve
from exporter.schedule.prune import Prune
from exporter.schedule.rates import SHAPES, OutOfReachError


def _images(vit: PrunableViT, count: int = 48) -> list[Tensor]:
    shape = (count, *vit.spec.preprocessing.input_size)
    return list(torch.randn(shape, generator=torch.Generator().manual_seed(1)).split(16))


def _cost(vit: PrunableViT) -> Callable[[Schedule], float]:
    return lambda schedule: schedule_macs(vit.spec, schedule).total


def _dense(vit: PrunableViT) -> PrunedViT:
    return PrunedViT(vit, keep_everything(vit.spec)).eval()


def _search(vit: PrunableViT, saved: float, candidates: int = 8) -> FoundCounts:
    target = (1.0 - saved) * dense_macs(vit.spec).total
    images = _images(vit)
    return search_counts(
        vit, resolve(Prune()), images, target=target, cost=_cost(vit), candidates=candidates
    )


def test_a_search_is_repeatable_and_no_dearer_than_asked_for(tiny_vit: PrunableViT) -> None:
    found = _search(tiny_vit, 0.25)
    assert found == _search(tiny_vit, 0.25)
    assert _cost(tiny_vit)(found.schedule) <= 0.75 * dense_macs(tiny_vit.spec).total
    gain = found.gain
    assert (gain.read, gain.held_out) == (24, 24) and found.shape in SHAPES
    assert gain.interval[0] <= gain.gain <= gain.interval[1]


def test_the_gain_is_that_on_images_that_were_not_read(tiny_vit: PrunableViT) -> None:
    found, others = _search(tiny_vit, 0.25), torch.cat(_images(tiny_vit))[1::2].split(16)
    own = divergences(
        _dense(tiny_vit), PrunedViT(tiny_vit, found.schedule).eval(), others
    ).mean()
    assert own == pytest.approx(
        found.gain.divergence - (found.gain.gain if found.gain.shown else 0.0)
    )


def test_where_nothing_is_tried_the_best_shape_is_taken(tiny_vit: PrunableViT) -> None:
    found = _search(tiny_vit, 0.25, candidates=0)
    assert (
        found.gain.gain == 0.0
        and not found.gain.shown
        and f"counts {found.shape}" in found.told
    )


def test_the_dense_model_diverges_from_itself_by_nothing(tiny_vit: PrunableViT) -> None:
    dense = _dense(tiny_vit)
    np.testing.assert_allclose(divergences(dense, dense, _images(tiny_vit)), 0.0, atol=1e-12)


def test_too_few_images_and_too_much_to_save_are_one_line(tiny_vit: PrunableViT) -> None:
    with pytest.raises(ImageError, match="8 images"):
        search_counts(
            tiny_vit, resolve(Prune()), _images(tiny_vit, 8), target=1e12, cost=_cost(tiny_vit)
        )
    with pytest.raises(OutOfReachError):
        _search(tiny_vit, 0.999)
