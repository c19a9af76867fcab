"""Refitting: nearer to the dense model, the given one untouched, and none where nothing is gained."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from exporter.core.base.errors import RecipeError, ScheduleError
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.tokens import Grid
from exporter.core.schedule.plan import as_read, keep_everything, shape_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT, weights_sha256
from exporter.data.spread import set_apart
from exporter.measure.loss import Gain
from exporter.models.registry import adapt
from exporter.report import words
from exporter.training import divergence
from exporter.training import refit as refit_module
from exporter.training.divergence import Judges, answers
from exporter.training.refit import _context, _fit, _hidden, refit, runs_to_refit
from tests.core.lower.models import a_star, pruned_of
from tests.vits import FAMILIES, POOLED, make_model


def _images(vit: PrunableViT, count: int = 96) -> list[Tensor]:
    """Images of which every fourth, which says what is gained, repeats one that is read."""
    shape = (count // 2, *vit.spec.preprocessing.input_size)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    return list(images.repeat_interleave(2, 0).split(16))


def _vit(family: str) -> PrunableViT:
    """A ViT whose scales of branches, where it has any, are not those of a network before its training."""
    model = make_model(family)
    for name, parameter in model.named_parameters():
        if "gamma" in name:
            torch.nn.init.uniform_(parameter, 0.3, 1.0)
    return adapt(model, name="tiny")


def _refit(pruned: PrunedViT, images: list[Tensor]) -> tuple[PrunedViT, Gain]:
    """Every fourth image judges."""
    read, judging = set_apart(torch.cat(images), 0.25)
    judges = Judges.of(pruned.vit, torch.stack(judging).split(16))
    return refit(pruned, torch.stack(read).split(16), judges)


def _matched(vit: PrunableViT, rho: float = 0.6) -> PrunedViT:
    schedule = shape_schedule(vit.spec, rho, resolve(Prune(method=Method.MATCHING)))
    return PrunedViT(vit, as_read(schedule, vit.spec)).eval()


@pytest.mark.parametrize("family", [*FAMILIES, *POOLED])
def test_what_is_missing_is_found_in_every_family(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens that changed last matrices give ask for that change, through gates, inner norms and scales."""
    monkeypatch.setattr(refit_module, "RIDGE", 1e-9)
    vit = _vit(family)
    block, prefix = vit.blocks[1], vit.spec.num_prefix_tokens
    attention, mlp = block.attention, block.mlp
    assert attention is not None and mlp is not None and isinstance(mlp.fc2, nn.Linear)
    shape = (20, prefix + vit.spec.num_patches, vit.spec.dim)
    grids = [Grid(torch.randn(shape), prefix) for _ in range(4)]
    halves = [
        (attention.out, attention.proj, partial(_context, block)),
        (mlp.out, mlp.fc2, partial(_hidden, mlp)),
    ]
    for out, linear, read in halves:
        with torch.no_grad():
            inputs, before = [read(grid) for grid in grids], linear.weight.clone()
            given = [out(linear(part)) for part in inputs]
            linear.weight += 0.1 * torch.randn_like(before)
            wanted = [out(linear(part)) for part in inputs]
            linear.weight.copy_(before)
            missing = [b - a for a, b in zip(given, wanted, strict=True)]
            assert torch.cat(missing).abs().max() > 0.05
            _fit(linear, out, zip(inputs, missing, strict=True))
            refitted = [out(linear(part)) for part in inputs]
            torch.testing.assert_close(refitted, wanted, atol=1e-3, rtol=0.0)


def test_the_copy_is_nearer_to_the_dense_model(tiny_vit: PrunableViT) -> None:
    pruned, judges = _matched(tiny_vit), Judges.of(tiny_vit, _images(tiny_vit))
    copy, gain = _refit(pruned, _images(tiny_vit))
    assert gain.shown and "on 24 images, which are among" in words.refit(gain)
    own, refitted = judges.divergences(pruned), judges.divergences(copy)
    assert refitted.mean() < 0.9 * own.mean()


def test_progress_counts_all_that_takes_time_and_ends_with_the_work(
    tiny_vit: PrunableViT, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judging is part of it: nothing runs after the last call."""
    seen: list[tuple[int, int]] = []
    judged: list[int] = []
    judges = Judges.of(tiny_vit, _images(tiny_vit))

    def noted(model: PrunedViT, images: list[Tensor]) -> Tensor:
        judged.append(len(seen))
        return answers(model, images)

    monkeypatch.setattr(divergence, "answers", noted)
    refit(
        _matched(tiny_vit), _images(tiny_vit), judges, lambda *done: seen.append(done)
    )
    counts, totals = zip(*seen, strict=True)
    assert set(totals) == {runs_to_refit(_images(tiny_vit), judges)}
    assert list(counts) == sorted(counts) and counts[-1] == totals[-1]
    depth = tiny_vit.spec.depth
    assert judged == [depth, depth + 1] and len(seen) == depth + 2


def test_the_given_model_stays_as_it_is(tiny_vit: PrunableViT) -> None:
    """And the copy differs from it in the last matrices of halves, and their biases, alone."""
    pruned, before = _matched(tiny_vit), weights_sha256(tiny_vit.model)
    copy, _ = _refit(pruned, _images(tiny_vit))
    assert (
        weights_sha256(tiny_vit.model)
        == tiny_vit.weights_sha256
        == before
        == copy.refit_of
    )
    assert copy.vit.weights_sha256 == weights_sha256(copy.model) != before
    own, other = tiny_vit.model.state_dict(), copy.model.state_dict()
    changed = {name for name in own if not torch.equal(own[name], other[name])}
    linears = ("mlp.fc2", "attn.proj")
    assert changed == {
        f"blocks.{at}.{linear}.{kind}"
        for at in range(4)
        for linear in linears
        for kind in ("weight", "bias")
    }
    again, _ = _refit(pruned, _images(tiny_vit))
    assert again.vit.weights_sha256 == copy.vit.weights_sha256


@pytest.mark.parametrize("reduce", ["drop", "merge", "merge-weighted"])
def test_wanted_of_each_token_is_the_mean_of_those_it_stands_for(
    tiny_vit: PrunableViT, reduce: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind each half, the tokens that are kept or merged are nearer to it than those of the given model."""
    errors: list[tuple[float, float]] = []

    def noted(
        linear: nn.Linear, out: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]
    ) -> None:
        inputs, missing = (torch.cat(parts) for parts in zip(*batches, strict=True))
        before = out(linear(inputs))
        _fit(linear, out, iter([(inputs, missing)]))
        left = missing - (out(linear(inputs)) - before)
        errors.append((float(missing.square().mean()), float(left.square().mean())))

    monkeypatch.setattr(refit_module, "_fit", noted)
    _refit(pruned_of(tiny_vit, reduce=reduce), _images(tiny_vit))
    # Nothing is missing before the first merge; what is dropped there is missed in the next block.
    first = 2 if reduce == "drop" else 1
    assert len(errors) == 8 and errors[0][0] < 1e-9
    assert all(after < 0.95 * before for before, after in errors[first:]), errors


def test_where_nothing_is_pruned_nothing_is_to_be_refitted(
    tiny_vit: PrunableViT,
) -> None:
    dense = PrunedViT(tiny_vit, keep_everything(tiny_vit.spec)).eval()
    taken, gain = _refit(dense, _images(tiny_vit))
    assert (
        taken is dense
        and abs(gain.gain) < 1e-9
        and words.refit(gain).startswith("no gain is shown")
    )


def test_what_does_not_help_others_is_not_taken(
    tiny_vit: PrunableViT, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of images that are all alike, with nearly no penalty, a matrix learns what is wrong for others."""
    monkeypatch.setattr(refit_module, "RIDGE", 1e-9)
    images = torch.cat(_images(tiny_vit))
    images[torch.arange(len(images)) % 4 != 3] = images[0].clone()
    pruned = _matched(tiny_vit)
    taken, gain = _refit(pruned, list(images.split(16)))
    assert taken is pruned and gain.gain < 0.0


def test_what_cannot_be_refitted_is_one_line(tiny_vit: PrunableViT) -> None:
    with pytest.raises(ScheduleError, match="a-star"):
        _refit(a_star(), _images(tiny_vit))
    with pytest.raises(RecipeError, match="its counts depend on the image"):
        resolve(Prune(method=Method.A_STAR, refit=True))
