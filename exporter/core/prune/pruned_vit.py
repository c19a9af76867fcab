"""The PyTorch reference of a pruned ViT: what every other runtime is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from exporter.core.base.outputs import output_names
from exporter.core.base.records import Schedule
from exporter.core.base.tensor_names import LOGITS
from exporter.core.base.vocabulary import Layout
from exporter.core.prune.ops.curve import along_curve
from exporter.core.prune.ops.factors import deciding
from exporter.core.prune.ops.merging import (
    merge_into,
    nearest_survivor,
    pair_tokens,
    pairs,
)
from exporter.core.prune.ops.selection import cdf_retain, cdf_retain_padded, keep_top_k
from exporter.core.prune.scores import (
    FACTOR_SCORES,
    Layer,
    inter_table,
    log_fused,
    weigh_inter,
)
from exporter.core.prune.tokens import Decision, FullGrid, Grid, Packed, Tokens
from exporter.core.schedule.checks import check_fits
from exporter.core.schedule.macs import MacCount, schedule_macs
from exporter.core.schedule.methods import reduction_named, scorer_named
from exporter.core.schedule.rates import counts
from exporter.core.vit.protocol import PrunableViT, Seen


@dataclass(frozen=True)
class Trace:
    """What a pruned forward pass gives by tensor name, and what it decided by layer, 0 before the first.

    `score[l]` [batch, n] are log fused scores, or those of pairs. Where tokens merge, `gap[l]` [batch, n] is by how
    much the survivor that each patch joins resembles it more than any other does; forced decisions have none.
    """

    outputs: dict[str, Tensor]
    decisions: dict[int, Decision]
    score: dict[int, Tensor]
    gap: dict[int, Tensor]

    @property
    def logits(self) -> Tensor:
        """Of a model that gives any."""
        return self.outputs[LOGITS]


class PrunedViT(nn.Module):
    """A ViT that drops or merges patches between attention and MLP of its layers, as a schedule says.

    Where a block has no MLP, they go after its attention; where it has no attention, none go. In a layer 0, before
    the first block, embedded patches merge.

    Blocks that keep everything are called untouched. Where the outputs read class tokens alone, the last attention
    has their queries only, and they alone go on, unless it drops patches. A schedule of rates 1 is the untouched
    model: bit for bit where all tokens go on, to rounding in that last layer, whose products have fewer rows.

    `refit_of` is the hash of the trained weights where others were refitted to the schedule, else "".

    Args:
        vit: The trained ViT; its modules are used, not copied.
        schedule: How many patches each layer keeps, and by which score.
        inter: Inter-layer importance [layers, patches]; needed by the scorers "fused" and "inter".
        layout: How tokens lie where images keep different numbers of them: in a grid as wide as the batch needs
            ("shrinking"), in one as wide as any batch may need ("padded"), or end to end ("packed").

    Raises:
        RecipeError: There is no such layout.
        ScheduleError: The schedule is not this model's, or inter-layer scores are missing or of another shape.
    """

    refit_of: str = ""
    _order: Int[Tensor, " n"]  # the patches along the curve
    _ranks: Int[Tensor, "1 n"]  # where each patch stands on it

    def __init__(
        self,
        vit: PrunableViT,
        schedule: Schedule,
        inter: np.ndarray | None = None,
        layout: Layout | str = Layout.SHRINKING,
    ) -> None:
        super().__init__()
        check_fits(schedule, vit.spec)
        self.vit, self.schedule, self.layout = vit, schedule, Layout.named(layout)
        self.model, self.reduction = vit.model, reduction_named(schedule.reduce)
        self.scorer = scorer_named(schedule.scorer)
        self.alpha = self.scorer.weight(schedule.alpha)
        self._layers = frozenset(schedule.pruning_layers)
        self._lone = schedule.lone_layer(vit.spec)
        self._along_curve = schedule.along_curve and bool(self._layers)
        if self._along_curve:
            # Buffers: torch.onnx has no translation of a tensor that the pass moves to a device.
            order = torch.from_numpy(along_curve(vit.spec.grid)).to(vit.device)
            self.register_buffer("_order", order, persistent=False)
            self.register_buffer("_ranks", order.argsort()[None], persistent=False)
        if self.alpha < 1.0 and self._layers:
            weighted = weigh_inter(
                inter_table(vit.spec, schedule, inter), self.alpha
            ).to(vit.device)
            # One buffer a layer: rows of a large table would be cut out of it in every run of an exported model.
            for layer in schedule.pruning_layers:
                self.register_buffer(_inter_name(layer), weighted[layer - 1].clone())

    def __repr__(self) -> str:
        return f"<PrunedViT {self.vit.spec.name}, {self.method}: {self.macs.gmacs:.3f} GMACs>"

    @property
    def method(self) -> str:
        """The schedule's method, "dense" where it drops nothing."""
        return self.schedule.method if self._layers else "dense"

    @property
    def macs(self) -> MacCount:
        """Multiply-adds of one image; under a-STAR, the most that any may take."""
        return schedule_macs(self.vit.spec, self.schedule)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Tensor | tuple[Tensor, ...]:
        """What the pruned model gives: one tensor, or several in the order of `core.base.outputs.output_names`."""
        return _one_or_all(self._run(images))

    def forward_watched(
        self, images: Float[Tensor, "b c h w"]
    ) -> Tensor | tuple[Tensor, ...]:
        """The same by way of all that checks read: what is exported, since variants of a file give that too."""
        return _one_or_all(self.trace(images).outputs)

    def embedded(self, images: Float[Tensor, "b c h w"]) -> Grid:
        """Return the tokens before any merge, their patches in the order in which they are paired."""
        prefix, weighs = self.vit.spec.num_prefix_tokens, self.reduction.weighs_keys
        values, positions = self.vit.embed_in_training(images)
        tokens = Grid(values, prefix, positions, weighs_keys=weighs)
        if positions is not None:
            ranks = self._ranks[0, positions] if self._along_curve else positions
            return tokens.taken(ranks.argsort(dim=1))
        return tokens.in_order(self._order) if self._along_curve else tokens

    def patches_left(self, images: Float[Tensor, "b c h w"]) -> Int[Tensor, "b layers"]:
        """Patches that each image has left after each layer."""
        left = torch.full((len(images),), self.schedule.left[0], dtype=torch.int64)
        trace, columns = self.trace(images), []
        for layer in range(1, self.vit.spec.depth + 1):
            if layer in trace.decisions:
                decision = trace.decisions[layer]
                if decision.count is None:
                    left = torch.full_like(left, decision.index.shape[1])
                else:
                    left = decision.count.cpu()
            columns.append(left)
        return torch.stack(columns, dim=1)

    def trace(
        self,
        images: Float[Tensor, "b c h w"],
        forced: Mapping[int, Decision] | None = None,
    ) -> Trace:
        """Outputs and decisions.

        Args:
            images: Preprocessed images.
            forced: Decisions by layer, in place of the model's own; scores are the model's all the same.
        """
        trace = Trace({}, {}, {}, {})
        trace.outputs.update(self._run(images, trace, forced))
        return trace

    def _run(
        self,
        images: Tensor,
        trace: Trace | None = None,
        forced: Mapping[int, Decision] | None = None,
    ) -> dict[str, Tensor]:
        """Return the outputs by tensor name; decisions go into `trace`, without which checks cost nothing."""
        tokens: Tokens = self.embedded(images)
        full = FullGrid.of(self.vit.spec, self._ranks if self._along_curve else None)
        outputs: dict[str, Tensor] = {}
        if 0 in self._layers:
            tokens, full = self._reduced(0, tokens, None, full, trace, forced)
        for layer in range(1, self.vit.spec.depth + 1):
            run = partial(self._layer, layer, trace=trace, forced=forced)
            if self.vit.recomputes:
                run = partial(checkpoint, run, use_reentrant=False)
            tokens, full = run(tokens, full)
            outputs |= tokens.outputs(self.vit, layer)
        outputs |= tokens.outputs(self.vit) | full.outputs(self.vit, tokens)
        names = output_names(self.vit.spec, self.schedule)
        return {name: outputs[name] for name in names}

    def _layer(
        self,
        layer: int,
        tokens: Tokens,
        full: FullGrid,
        *,
        trace: Trace | None,
        forced: Mapping[int, Decision] | None,
    ) -> tuple[Tokens, FullGrid]:
        block = self.vit.blocks[layer - 1]
        if layer == self._lone:
            return tokens.alone(block, self.vit.spec.read_tokens), full
        if layer not in self._layers:
            return tokens.through(block), full
        attended, seen = tokens.attention(block)
        tokens, full = self._reduced(layer, attended, seen, full, trace, forced)
        return tokens.mlp(block), full

    def _reduced(  # noqa: PLR0917  (all that a layer passes on)
        self,
        layer: int,
        tokens: Tokens,
        seen: Seen | None,
        full: FullGrid,
        trace: Trace | None,
        forced: Mapping[int, Decision] | None,
    ) -> tuple[Tokens, FullGrid]:
        with deciding():
            if trace is None:
                decision = self._decide(layer, tokens, seen)
            else:
                own = None if forced is None else forced[layer]
                decision, trace.score[layer], gap = self.choose(
                    layer, tokens, seen, own
                )
                trace.decisions[layer] = decision
                if gap is not None:
                    trace.gap[layer] = gap
        return self._reduce(tokens, decision), full.before(tokens, decision)

    def choose(
        self,
        layer: int,
        tokens: Tokens,
        seen: Seen | None,
        forced: Decision | None = None,
    ) -> tuple[Decision, Tensor, Tensor | None]:
        """Decide between attention and MLP of a layer; before the first one, nothing is `seen`.

        Return the decision, or the forced one; the scores; and the gaps of a merge that was not forced.
        """
        if seen is None or self.scorer.pairs:
            index, into, score, gap = pair_tokens(*self._compared(layer, tokens, seen))
            if forced is None:
                return Decision(index, into=into), score, gap
            return forced, score, None
        score = self._score(layer, seen, tokens)
        if forced is not None:
            return forced, score, None
        decision = self._kept(layer, score, tokens)
        if not self.reduction.merges:
            return decision, score, None
        into, gap = merge_into(
            seen.key, decision.index, self.vit.spec.num_prefix_tokens
        )
        return replace(decision, into=into), score, gap

    def _decide(self, layer: int, tokens: Tokens, seen: Seen | None) -> Decision:
        """Return the decision of `choose` alone."""
        if seen is None or self.scorer.pairs:
            index, into = pairs(*self._compared(layer, tokens, seen))
            return Decision(index, into=into)
        decision = self._kept(layer, self._score(layer, seen, tokens), tokens)
        if not self.reduction.merges:
            return decision
        prefix = self.vit.spec.num_prefix_tokens
        into = nearest_survivor(seen.key, decision.index, prefix)
        return replace(decision, into=into)

    def _compared(
        self, layer: int, tokens: Tokens, seen: Seen | None
    ) -> tuple[Tensor, Tensor | None, int, int]:
        """Return what `pair_tokens` takes: keys or tokens, sizes where they count, survivors, prefix tokens."""
        prefix = self.vit.spec.num_prefix_tokens
        if seen is None or self.scorer.by_tokens:
            compared, sizes = tokens.rows().unsqueeze(1), tokens.sizes
        else:
            compared, sizes = seen.key, None
        return compared, sizes, self._most(layer, compared.shape[2] - prefix), prefix

    def _most(self, layer: int, patches: int) -> int:
        """Return how many patches stay of those that reach a layer: the schedule's count.

        Where patch dropout has left out some, it is the same share of the others.
        """
        schedule = self.schedule
        if schedule.adaptive or patches == schedule.reaching[layer]:
            return schedule.left[layer]
        rate = (
            schedule.rates[layer - 1]
            if layer
            else schedule.left[0] / schedule.num_patches
        )
        prefix = self.vit.spec.num_prefix_tokens
        return counts((rate,), patches, schedule.round_to, prefix)[0]

    def _score(self, layer: int, seen: Seen, tokens: Tokens) -> Tensor:
        """Log fused score [batch, n] of the patches that are there."""
        positions, intra, inter = tokens.positions, None, None
        if self.alpha > 0.0:
            factor = self.scorer.factor_of(self.vit.spec)
            intra = FACTOR_SCORES[factor.name](
                Layer(self.vit, tokens, seen, self.schedule.query_stride)
            )
        if self.alpha < 1.0:
            table = self.get_buffer(_inter_name(layer))
            inter = (
                table.expand(seen.key.shape[0], -1)
                if positions is None
                else table[positions]
            )
        return log_fused(intra, inter, self.alpha)

    def _kept(self, layer: int, score: Tensor, tokens: Tokens) -> Decision:
        """STAR's top k, or a-STAR's share of the mass, of each image's own patches."""
        most, count = self._most(layer, score.shape[1]), tokens.count
        mass = self.schedule.rates[layer - 1]
        likely = score.exp()
        if not self.schedule.adaptive:
            return Decision(keep_top_k(score, most))
        if count is None:
            count = torch.full_like(score[:, 0], score.shape[1], dtype=torch.int64)
        if self.layout == Layout.PADDED:
            index, kept_count = cdf_retain_padded(likely, count, mass, most)
            return Decision(index, kept_count)
        index, kept_count, _ = cdf_retain(likely, count, mass)
        return Decision(index, kept_count)

    def _reduce(self, tokens: Tokens, decision: Decision) -> Tokens:
        if (
            self.layout == Layout.PACKED
            and decision.count is not None
            and isinstance(tokens, Grid)
        ):
            return Packed.of(tokens, decision)
        return tokens.reduce(decision)


def _one_or_all(outputs: Mapping[str, Tensor]) -> Tensor | tuple[Tensor, ...]:
    values = tuple(outputs.values())
    return values[0] if len(values) == 1 else values


def _inter_name(layer: int) -> str:
    return f"weighted_log_inter_{layer:02d}"
