"""Count the multiply-adds of a ViT from its real token counts; 1 MAC is what the papers call 1 "FLOP"."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exporter.core.base.records import ModelSpec, Schedule
from exporter.core.base.tensor_names import Array
from exporter.core.schedule.counts import joined_patches
from exporter.core.schedule.methods import FUSED, reduction_named, scorer_named


@dataclass(frozen=True)
class MacCount:
    """MACs of one image: those of the network, and those of scoring and merging patches."""

    network: int
    scoring: int

    @property
    def total(self) -> int:
        """MACs of network and scoring."""
        return self.network + self.scoring

    @property
    def gmacs(self) -> float:
        """The total in 10⁹ MACs."""
        return self.total / 1e9


def dense_macs(spec: ModelSpec) -> MacCount:
    """Return the MACs of the unpruned model."""
    return pruned_macs(spec, (spec.num_patches,) * spec.depth)


def schedule_macs(spec: ModelSpec, schedule: Schedule) -> MacCount:
    """Return the MACs of one image under a schedule; under a-STAR, the most that any may take."""
    return pruned_macs(spec, schedule.keep, scored=schedule)


def pruned_macs(
    spec: ModelSpec,
    keep: Sequence[int],
    padded: Sequence[int] | None = None,
    scored: Schedule | None = None,
) -> MacCount:
    """Return the MACs if layer l keeps `keep[l]` patches between its attention and its MLP.

    `padded` is the width of the token grid after each layer, if tokens are padded: attention and scoring then
    include the padding, linear layers do not. `scored` says how patches are scored and reduced; None: by the fused
    score, and dropped.

    In the lone last layer (`ModelSpec.lone_layer`) only the tokens that are read have a query and go on; papers
    count all of them to the end, which is the count of `ModelSpec.as_it_came`.

    A block of N tokens costs 4·N·d² + 2·N²·d for attention and 2·h·N'·d for the MLP (3·h·N'·d for a gated one) on
    the N' tokens left; a missing part costs nothing. A head for patches costs c·d for each patch left after the
    last block.
    In a layer that drops any, scoring costs what its intra-layer factor does (`core.schedule.methods`: N·d for
    the row of each class token), where it is read, and one product per patch for the fusion.
    Merging adds two products over all tokens: N·k times the dimension of a head for the similarities to the k
    survivors, and N·N'·d for the weighted means. Pairs have no such factor; each of the two products costs that of
    both sets' sizes, times the dimension of a head, or of a token where tokens are compared, and times d.
    """
    prefix, dim = spec.num_prefix_tokens, spec.dim
    network = spec.embed_macs + spec.head_macs + spec.patch_head_macs * keep[-1]
    embedded = spec.num_patches if scored is None else scored.left[0]
    scoring, before, grid = 0, embedded, embedded
    if embedded < spec.num_patches:
        scoring += _scoring_macs(
            spec, spec.num_patches, embedded, spec.num_patches, scored
        )
    lone = spec.lone_layer if scored is None else scored.lone_layer(spec)
    unread = 0
    layers = zip(spec.blocks, keep, padded or keep, strict=True)
    for layer, (block, after, grid_after) in enumerate(layers, start=1):
        tokens, places = prefix + before, prefix + grid
        if layer == lone and after == before:
            unread = tokens - spec.read_tokens
        if block.attention_token_macs:
            queries = spec.read_tokens if unread else places
            network += tokens * block.attention_token_macs + 2 * queries * places * dim
            # Half of the linear layers make keys and values.
            network -= unread * block.attention_token_macs // 2
        network += (prefix + after - unread) * block.mlp_token_macs
        if after < before:
            scoring += _scoring_macs(spec, before, after, grid, scored)
        before, grid = after, grid_after
    return MacCount(network, scoring)


def _scoring_macs(
    spec: ModelSpec, before: int, after: int, grid: int, scored: Schedule | None
) -> int:
    """Return the MACs of choosing the patches of one layer, and of merging the others."""
    scorer = FUSED if scored is None else scorer_named(scored.scorer)
    stride = 1 if scored is None else scored.query_stride
    merges = scored is not None and reduction_named(scored.reduce).merges
    prefix, head_dim = spec.num_prefix_tokens, spec.dim // spec.num_heads
    if scorer.pairs:
        joined = len(joined_patches(before, after, prefix))
        compared = spec.dim if scorer.by_tokens else head_dim
        return (before - joined) * joined * (compared + spec.dim)
    macs, tokens = 0, prefix + before
    if merges:
        macs = tokens * ((prefix + after) * spec.dim + after * head_dim)
    if scorer.alpha != 0.0:
        macs += scorer.factor_of(spec).macs(spec, prefix + grid, stride)
    return macs + grid


def mean_macs(spec: ModelSpec, left: Array, scored: Schedule | None = None) -> MacCount:
    """Return the mean MACs of an image; `left` [images, depth] is the number of patches after each layer.

    `scored` is as in `pruned_macs`.
    """
    macs = [pruned_macs(spec, keep, scored=scored) for keep in left.tolist()]
    network = sum(image.network for image in macs)
    scoring = sum(image.scoring for image in macs)
    return MacCount(round(network / len(macs)), round(scoring / len(macs)))


def executed_macs(
    spec: ModelSpec,
    left: Array,
    layout: str,
    most: Sequence[int],
    scored: Schedule | None = None,
) -> float:
    """Return the mean MACs of an image in a batch, padding included.

    Args:
        spec: The model's shape.
        left: Number of patches of each image after each layer, [batch, depth].
        layout: "shrinking" pads every image to the largest of the batch, "padded" to `most`; "packed" pads only
            attention, to the largest of the batch.
        most: Upper bound of the number of patches after each layer.
        scored: As in `pruned_macs`.
    """
    widest = left.max(axis=0).tolist()
    if layout == "packed":
        totals = [
            pruned_macs(spec, keep, widest, scored).total for keep in left.tolist()
        ]
        return float(np.mean(totals))
    keep = most if layout == "padded" else widest
    return float(pruned_macs(spec, keep, scored=scored).total)


@dataclass(frozen=True)
class LayerUse:
    """Number of patches that a 1-based layer keeps, over images; STAR would keep `star` of each."""

    layer: int
    least: int
    median: float
    p95: float
    most: int
    star: int


@dataclass(frozen=True)
class PatchUse:
    """Patches kept of `images` images, and the mean multiply-adds per image.

    `useful_macs` count the survivors of each image and include `scoring_macs`; `most_macs` are those of the image
    that takes the most. `executed_macs` also count the padding in batches of `batch` images.
    """

    images: int
    batch: int
    layout: str
    layers: tuple[LayerUse, ...]
    useful_macs: int
    scoring_macs: int
    most_macs: int
    executed_macs: float


def patch_use(
    spec: ModelSpec, schedule: Schedule, left: Array, layout: str, batch: int
) -> PatchUse:
    """Return the use of patches; `left` [images, depth] is the number of patches of each image after each layer."""
    layers = []
    for layer in schedule.pruning_layers:
        patches = left[:, layer - 1]
        layers.append(
            LayerUse(
                layer=layer,
                least=int(patches.min()),
                median=float(np.median(patches)),
                p95=float(np.percentile(patches, 95)),
                most=int(patches.max()),
                star=schedule.keep[layer - 1],
            )
        )
    executed = 0.0
    for start in range(0, len(left), batch):
        group = left[start : start + batch]
        executed += executed_macs(spec, group, layout, schedule.keep, schedule) * len(
            group
        )
    useful = mean_macs(spec, left, schedule)
    most = max(pruned_macs(spec, keep, scored=schedule).total for keep in left.tolist())
    return PatchUse(
        images=len(left),
        batch=batch,
        layout=layout,
        layers=tuple(layers),
        useful_macs=useful.total,
        scoring_macs=useful.scoring,
        most_macs=most,
        executed_macs=executed / len(left),
    )
