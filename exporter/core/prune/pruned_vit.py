"""The PyTorch reference of a pruned ViT: what every other runtime is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from exporter.core.base.artefact import output_names
from exporter.core.base.records import Schedule
from exporter.core.base.tensor_names import LOGITS
from exporter.core.base.vocabulary import Layout
from exporter.core.prune.ops.curve import along_curve
from exporter.core.prune.ops.merging import merge_into, pair_tokens
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
        """What the pruned model gives: one tensor, or several in the order of `core.base.artefact.output_names`."""
        outputs = tuple(self.trace(images).outputs.values())
        return outputs[0] if len(outputs) == 1 else outputs

    def embedded(self, images: Float[Tensor, "b c h w"]) -> Grid:
        """Return the tokens before any merge, their patches in the order in which they are paired."""
        prefix = self.vit.spec.num_prefix_tokens
        values, weighs = self.vit.embed(images), self.reduction.weighs_keys
        tokens = Grid(values, prefix, weighs_keys=weighs)
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
        tokens: Tokens = self.embedded(images)
        trace = Trace({}, {}, {}, {})
        full = FullGrid.of(self.vit.spec, self._ranks if self._along_curve else None)
        outputs: dict[str, Tensor] = {}

        def reduced(layer: int, tokens: Tokens, seen: Seen | None) -> Tokens:
            nonlocal full
            decision, trace.score[layer], gap = self.choose(
                layer, tokens, seen, None if forced is None else forced[layer]
            )
            trace.decisions[layer] = decision
            if gap is not None:
                trace.gap[layer] = gap
            full = full.before(tokens, decision)
            return self._reduce(tokens, decision)

        if 0 in self._layers:
            tokens = reduced(0, tokens, None)
        for layer, block in enumerate(self.vit.blocks, start=1):
            if layer == self._lone:
                tokens = tokens.alone(block, self.vit.spec.read_tokens)
            elif layer not in self._layers:
                tokens = tokens.through(block)
            else:
                tokens = reduced(layer, *tokens.attention(block)).mlp(block)
            outputs |= tokens.outputs(self.vit, layer)
        outputs |= tokens.outputs(self.vit) | full.outputs(self.vit, tokens)
        for name in output_names(self.vit.spec, self.schedule):
            trace.outputs[name] = outputs[name]
        return trace

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
            most, prefix = self.schedule.left[layer], self.vit.spec.num_prefix_tokens
            if seen is None or self.scorer.by_tokens:
                compared, sizes = tokens.rows().unsqueeze(1), tokens.sizes
            else:
                compared, sizes = seen.key, None
            index, into, score, gap = pair_tokens(compared, sizes, most, prefix)
            if forced is None:
                return Decision(index, into=into), score, gap
            return forced, score, None
        score = self._score(layer, seen, tokens)
        if forced is not None:
            return forced, score, None
        decision = self._decide(layer, score, tokens.count)
        if not self.reduction.merges:
            return decision, score, None
        into, gap = merge_into(
            seen.key, decision.index, self.vit.spec.num_prefix_tokens
        )
        return replace(decision, into=into), score, gap

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

    def _decide(self, layer: int, score: Tensor, count: Tensor | None) -> Decision:
        """STAR's top k, or a-STAR's share of the mass, of each image's own `count` patches."""
        most = self.schedule.left[layer]
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


def _inter_name(layer: int) -> str:
    return f"weighted_log_inter_{layer:02d}"
