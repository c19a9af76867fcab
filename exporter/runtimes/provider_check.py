"""Which execution provider of ONNX Runtime really ran a model: one that cannot take a node leaves it to the CPU."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from exporter.errors import UserError
from exporter.runtimes.base import Feed
from exporter.runtimes.onnxruntime_profile import Kernel, profile

__all__ = ["require_provider", "strays"]

CPU = "CPUExecutionProvider"

# Operators that do a ViT's work. Others may stay on the CPU: sizes are computed there on purpose.
WORK = frozenset(
    {
        "Attention",
        "BiasGelu",
        "Conv",
        "FastGelu",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "GatherND",
        "Gelu",
        "Gemm",
        "LayerNormalization",
        "MatMul",
        "MultiHeadAttention",
        "SkipLayerNormalization",
        "Softmax",
        "TopK",
    }
)


def require_provider(model: Path, providers: Sequence[str], feed: Feed, threads: int = 0) -> None:
    """Run a model once, and hold every kernel that matters to the first provider.

    Args:
        model: The ONNX file.
        providers: As its runner has them, the one that was asked for first.
        feed: One batch.
        threads: CPU threads within an operator.

    Raises:
        UserError: A part of the model ran elsewhere; says which and where.
    """
    if providers[0] == CPU:
        return
    kernels = profile(model, feed, runs=1, warmup=1, threads=threads, providers=providers)
    elsewhere = strays(kernels, providers[0])
    if elsewhere:
        what = ", ".join(f"{count} {operator} on {where}" for (operator, where), count in elsewhere.items())
        raise UserError(f"{model.name} on {providers[0]}", what, "all of the model's work there")
    if not any(each.provider == providers[0] for each in kernels):
        raise UserError(f"{model.name} on {providers[0]}", "no kernel of it in the profile", "at least one")


def strays(kernels: Sequence[Kernel], provider: str) -> dict[tuple[str, str], int]:
    """How many kernels of each working operator ran on another provider."""
    found = Counter(
        (each.operator, each.provider)
        for each in kernels
        if each.operator in WORK and each.provider != provider
    )
    return dict(sorted(found.items()))
