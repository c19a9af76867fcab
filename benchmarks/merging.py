"""Compare STAR with token merging (ToMe, ICLR 2023) at equal MACs, interleaved. Markdown on stdout.

    python benchmarks/merging.py --model deit_small_patch16_224 --batch 8

ToMe merges after every attention: all tokens but the class token are split alternately into two sets. The r
tokens of the first set most similar to one of the second (cosine of mean keys) are averaged into it, weighted by
token size. Attention adds log size to the logits. Both models share star-export's dense baseline and graph passes.
"""

import argparse
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import torch
from deits import MODELS, deit, dense, prune, schedule
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.artefact import Artefact
from exporter.evaluation.benchmark import compare_speed, throughput
from exporter.lowering.passes.linear_as_gemm import linear_as_gemm
from exporter.lowering.pipeline import lower
from exporter.models.base import BlockParts, PrunableViT
from exporter.models.block import mlp_half
from exporter.records import ModelSpec
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.macs import dense_macs
from exporter.targets import ONNXRUNTIME
from exporter.tensor_names import IMAGES, LOGITS
from exporter.workflows.measuring import noise

COLUMNS = ("model", "GMACs", "img/s", "speed-up", "quartiles", "E", "largest error")


class Merging(nn.Module):
    """A DeiT that merges `r` tokens in every block, or as many as possible in the last blocks."""

    def __init__(self, vit: PrunableViT, r: int) -> None:
        super().__init__()
        self.vit, self.r, self.model = vit, r, vit.model

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [batch, classes] of images [batch, 3, H, W]."""
        tokens = self.vit.embed(images)
        size = torch.ones_like(tokens[..., :1])
        for block in self.vit.blocks:
            tokens, metric = attention(block, tokens, size)
            tokens, size = merge(tokens, size, metric, merged(tokens.shape[1], self.r))
            tokens = mlp_half(block, tokens)
        return self.vit.classify(self.vit.norm(tokens))


def merged(tokens: int, r: int) -> int:
    """Return how many of `tokens` to merge: `r`, but at most half of the patches."""
    return min(r, (tokens - 1) // 2)


def attention(block: BlockParts, tokens: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """Return attention plus residual, with log size added to the logits, and the mean keys [b, t, head_dim]."""
    part = block.attention
    assert part is not None
    normed, qkv = part.norm(tokens), part.qkv
    thirds = zip(qkv.get_parameter("weight").chunk(3), qkv.get_parameter("bias").chunk(3), strict=True)
    query, key, value = (F.linear(normed, weight, bias) for weight, bias in thirds)
    heads, width = part.num_heads, tokens.shape[1]
    mask = size.log().reshape(-1, 1, 1, width).expand(-1, 1, width, -1)
    context, *_ = torch.onnx.ops.attention(query, key, value, mask, q_num_heads=heads, kv_num_heads=heads)
    return tokens + part.proj(context), key.reshape(-1, width, heads, part.head_dim).mean(dim=2)


def merge(tokens: Tensor, size: Tensor, metric: Tensor, r: int) -> tuple[Tensor, Tensor]:
    """Return the class token, the unmerged tokens of the first set and the merged second set; and their sizes."""
    if not r:
        return tokens, size
    metric = F.normalize(metric, dim=-1)
    best, partner = (metric[:, 2::2] @ metric[:, 1::2].transpose(1, 2)).max(dim=-1)
    order = best.topk(best.shape[1]).indices
    gone, stay = order[:, :r], order[:, r:]
    weighted = torch.cat([tokens * size, size], dim=-1)
    first, second = weighted[:, 2::2], weighted[:, 1::2]
    into = F.one_hot(partner.gather(1, gone), second.shape[1]).to(tokens.dtype)
    second = second + into.transpose(1, 2) @ rows(first, gone)
    left = [rows(first, stay)] if stay.shape[1] else []
    joined = torch.cat([weighted[:, :1], *left, second], dim=1)
    return joined[..., :-1] / joined[..., -1:], joined[..., -1:]


def rows(values: Tensor, index: Tensor) -> Tensor:
    """Select rows [b, k] of values [b, n, d] as [b, k, d], through one flat index: the fastest form of Gather."""
    offsets = torch.arange(values.shape[0], device=index.device).unsqueeze(1) * values.shape[1]
    picked = values.flatten(0, 1).index_select(0, (index + offsets).flatten())
    return picked.reshape(-1, index.shape[1], values.shape[2])


def merging_macs(spec: ModelSpec, r: int) -> float:
    """Return the multiply-adds per image, similarities and sums included."""
    macs = float(spec.embed_macs + spec.head_macs)
    tokens = spec.num_prefix_tokens + spec.num_patches
    for block in spec.blocks:
        gone, first, second = merged(tokens, r), (tokens - 1) // 2, tokens // 2
        macs += tokens * block.attention_token_macs + 2 * tokens**2 * spec.dim
        macs += first * second * spec.dim // spec.num_heads + second * gone * spec.dim
        tokens -= gone
        macs += tokens * block.mlp_token_macs
    return macs


def lowered(model: Merging) -> bytes:
    """Export to ONNX of opset 23, with linear layers as Gemm, as star-export has them."""
    spec = model.vit.spec
    program = torch.onnx.export(
        model.eval(),
        (torch.zeros(2, *spec.preprocessing.input_size),),
        dynamo=True,
        input_names=[IMAGES],
        output_names=[LOGITS],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        opset_version=ONNXRUNTIME.opset,
        verbose=False,
    )
    assert program is not None
    graph = gs.import_onnx(program.model_proto)
    linear_as_gemm(graph, Artefact(spec, dense(spec.name).schedule, ONNXRUNTIME))
    content: bytes = gs.export_onnx(graph.cleanup().toposort()).SerializeToString()
    return content


def main() -> None:
    """Lower, measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS, help="DeiT to measure.")
    parser.add_argument("--rho", type=float, default=0.7, help="The lowest retention rate.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=40, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    options = parser.parse_args()
    vit, pruned = deit(options.model), prune(schedule(options.model, options.rho), options.model)
    spec = vit.spec
    r = min(range(1, spec.num_patches // 4), key=lambda r: abs(merging_macs(spec, r) - pruned.macs.total))
    name = f"merging, r = {r}"
    references: dict[str, nn.Module] = {"dense": vit.model, "STAR": pruned, name: Merging(vit, r)}
    contents = {
        "dense": lower(dense(options.model), ONNXRUNTIME).SerializeToString(),
        "STAR": lower(pruned, ONNXRUNTIME).SerializeToString(),
        name: lowered(Merging(vit, r)),
    }
    runners = {each: OnnxRuntimeRunner(made, threads=options.threads) for each, made in contents.items()}
    feed = {IMAGES: noise(spec, "float32", options.batch)}
    times = throughput(runners, feed, batch=options.batch, rounds=options.rounds, warmup=3)
    macs = {"dense": dense_macs(spec).total, "STAR": pruned.macs.total, name: merging_macs(spec, r)}
    print(f"{options.model}, rho {options.rho:g}, batch {options.batch}, {options.rounds} rounds\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for each, runner in runners.items():
        against = compare_speed(times["dense"], times[each], (float(macs["dense"]), float(macs[each])))
        error = _error(runner, references[each], feed)
        print(_row(each, macs[each] / 1e9, times[each].images_per_s, against, error))


def _error(runner: OnnxRuntimeRunner, reference: nn.Module, feed: dict[str, np.ndarray]) -> float:
    """Return the largest difference from PyTorch's logits, in standard deviations of the logits."""
    with torch.inference_mode(), runner:
        expected = reference(torch.from_numpy(feed[IMAGES])).numpy()
        return float(np.abs(runner.run(feed)[LOGITS] - expected).max() / expected.std())


def _row(name: str, gmacs: float, rate: float, against: Any, error: float) -> str:
    low, high = against.quartiles
    cells = (f"{gmacs:.2f}", f"{rate:.1f}", f"{against.speedup:.3f}", f"{low:.3f} to {high:.3f}")
    return f"| {' | '.join((name, *cells, f'{against.efficiency:.3f}', f'{error:.1e}'))} |"


if __name__ == "__main__":
    main()
