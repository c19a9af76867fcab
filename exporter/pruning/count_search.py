"""Search how many patches each layer keeps, without labels: what changes the dense model's answers least.

The divergence of an image is the Kullback-Leibler divergence of its classes' chances from the dense model's (in
nats), or one minus the cosine of its embeddings. Steps start from the best shape of `exporter.schedule.rates` at
equal cost. Half of the images are read for it; the other half only say what was gained.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exporter.errors import ImageError, ScheduleError
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Output, Schedule
from exporter.schedule.plan import keep_everything, saving_schedule
from exporter.schedule.prune import Prune
from exporter.schedule.rates import SHAPES, Curve, OutOfReachError
from exporter.vocabulary import OutputKind

CANDIDATES = 24
# The first steps change a layer's share of what it prunes by about this factor, the last ones by its root.
STEP = 0.7
# With fewer images to hold out, an interval says little.
LEAST_IMAGES = 32
# Two-sided 95 % of a normal mean.
Z = 1.96


@dataclass(frozen=True)
class FoundCounts:
    """The schedule to take, and what the search gained over the best shape on `held_out` images.

    `shape` is that shape, `schedule` its own where no gain is shown. `gain` is the mean of the differences of
    divergence, `interval` its 95 % interval; `divergence` is that of the best shape. Above 0 is better.
    """

    schedule: Schedule
    shape: str
    divergence: float
    gain: float
    interval: tuple[float, float]
    read: int
    held_out: int

    @property
    def shown(self) -> bool:
        """Whether the interval of the gain lies above 0."""
        return self.interval[0] > 0.0

    @property
    def told(self) -> str:
        """One line of what was found."""
        low, high = self.interval
        taken = "searched counts" if self.shown else f"counts {self.shape}, over which no gain is shown,"
        return (
            f"{taken} from {self.read} images; on {self.held_out} others the search lowers the divergence "
            f"{self.divergence:.4f} of {self.shape} by {self.gain:.4f} (95 % {low:.4f} to {high:.4f})"
        )


def divergences(
    vit: PrunableViT,
    dense: Tensor,
    schedule: Schedule,
    images: Sequence[Tensor],
    inter: np.ndarray | None = None,
) -> np.ndarray:
    """Return the divergence of each image under a schedule; `dense` is what `answers` gives of the dense model."""
    found = answers(vit, schedule, images, inter)
    if _output(vit).kind == OutputKind.EMBEDDING:
        return (1.0 - torch.cosine_similarity(dense, found, dim=-1)).double().numpy()
    own, other = dense.double().log_softmax(-1), found.double().log_softmax(-1)
    return (own.exp() * (own - other)).sum(-1).numpy()


def answers(
    vit: PrunableViT, schedule: Schedule, images: Sequence[Tensor], inter: np.ndarray | None = None
) -> Tensor:
    """Return the logits, or the embeddings, of all images [images, channels], on the CPU."""
    model, name = PrunedViT(vit, schedule, inter).eval(), _output(vit).name
    with torch.inference_mode():
        return torch.cat([model.trace(each.to(vit.device)).outputs[name].float().cpu() for each in images])


def search_counts(
    vit: PrunableViT,
    settings: Prune,
    images: Sequence[Tensor],
    *,
    target: float,
    cost: Callable[[Schedule], float],
    inter: np.ndarray | None = None,
    inter_sha256: str = "",
    candidates: int = CANDIDATES,
) -> FoundCounts:
    """Find the counts whose answers differ least from the dense model's, at a cost of at most the target.

    Args:
        vit: The dense model.
        settings: How patches are chosen and reduced; its seed draws the steps.
        images: Batches of preprocessed images [b, c, h, w], without labels; at least `LEAST_IMAGES`.
        target: The target cost, in any unit.
        cost: The cost of a schedule, in the same unit.
        inter: Inter-layer importance [layers, patches], where the scorer needs it.
        inter_sha256: Its digest.
        candidates: Counts that are tried, beside the shapes.

    Raises:
        ImageError: There are too few images.
        OutOfReachError: No shape reaches the target.
        ScheduleError: The model gives neither logits nor an embedding.
    """
    every = torch.cat(list(images))
    if len(every) < LEAST_IMAGES:
        raise ImageError("counts search", f"{len(every)} images", f"at least {LEAST_IMAGES}")
    size, half = len(images[0]), (len(every) + 1) // 2
    read, held_out = every[:half].split(size), every[half:].split(size)
    whole = keep_everything(vit.spec)
    dense = answers(vit, whole, read)

    def planned(curve: Curve | str) -> Schedule:
        return saving_schedule(vit.spec, target, settings, inter_sha256, cost=cost, curve=curve)

    def mean(schedule: Schedule) -> float:
        return float(divergences(vit, dense, schedule, read, inter).mean())

    starts = _reached(planned)
    found = {shape: mean(schedule) for shape, schedule in starts.items()}
    shape = min(found, key=lambda each: found[each])
    best = _climbed(starts[shape], planned, mean, candidates=candidates, seed=settings.seed)
    dense = answers(vit, whole, held_out)
    own, other = (divergences(vit, dense, each, held_out, inter) for each in (starts[shape], best))
    gains = own - other
    gain, half_width = float(gains.mean()), Z * float(gains.std(ddof=1)) / len(gains) ** 0.5
    interval = (gain - half_width, gain + half_width)
    taken = best if interval[0] > 0.0 else starts[shape]
    return FoundCounts(taken, shape, float(own.mean()), gain, interval, half, len(every) - half)


def _output(vit: PrunableViT) -> Output:
    for kind in (OutputKind.LOGITS, OutputKind.EMBEDDING):
        for each in vit.spec.outputs:
            if each.kind == kind:
                return each
    got = ", ".join(each.name for each in vit.spec.outputs)
    raise ScheduleError("counts search", f"the outputs {got}", "logits or an embedding")


def _reached(planned: Callable[[Curve | str], Schedule]) -> dict[str, Schedule]:
    """Return the schedule of each shape that reaches the target."""
    starts, missed = {}, []
    for shape in SHAPES:
        try:
            starts[shape] = planned(shape)
        except OutOfReachError as error:
            missed.append(error)
    if not starts:
        raise min(missed, key=lambda each: each.least)
    return starts


def _climbed(
    best: Schedule,
    planned: Callable[[Curve | str], Schedule],
    mean: Callable[[Schedule], float],
    *,
    candidates: int,
    seed: int,
) -> Schedule:
    """Step from the best counts to better ones: a step changes the weights of layers smoothly, by three numbers."""
    rng, tried = np.random.default_rng(seed), {best.keep}
    weights, least = _weights(best), mean(best)
    for number in range(candidates):
        size = STEP * 0.5 ** (number / candidates)
        knots = rng.normal(0.0, size, 3)
        step = np.interp(np.linspace(0.0, 2.0, len(weights)), (0.0, 1.0, 2.0), knots)
        changed = weights * np.exp(step)
        schedule = planned(_curve_of(changed / changed.max()))
        if schedule.keep in tried:
            continue
        tried.add(schedule.keep)
        divergence = mean(schedule)
        if divergence < least:
            best, least, weights = schedule, divergence, changed / changed.max()
    return best


def _weights(schedule: Schedule) -> np.ndarray:
    """Return the share that each layer prunes of its patches, of the layers that prune; at most 1."""
    shares = np.array([1.0 - schedule.rates[layer - 1] for layer in schedule.pruning_layers])
    return np.maximum(shares / shares.max(), 1e-3)


def _curve_of(weights: np.ndarray) -> Curve:
    """Return the curve whose layers prune shares in these proportions, from first to last."""

    def curve(steepness: float, layer: int, end: int) -> float:
        # The layers that may prune are given as many weights as they are.
        places = np.interp(np.arange(1, layer + 1), np.linspace(1, max(end - 1, 2), len(weights)), weights)
        return float(np.prod(1.0 - steepness * places))

    return curve
