"""Check which execution provider of ONNX Runtime ran each kernel; nodes it does not support run on the CPU."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from exporter.errors import UserError
from exporter.runtimes.base import Feed
from exporter.runtimes.onnxruntime.profile import Kernel, profile

__all__ = ["require_provider", "strays"]

CPU = "CPUExecutionProvider"

# Operators that do a ViT's main work. Others may run on the CPU: ONNX Runtime computes sizes there on purpose.
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
    """Run a model once, and check that the first provider ran every kernel in WORK.

    Args:
        model: The ONNX file.
        providers: The runner's execution providers, the requested one first.
        feed: One batch.
        threads: CPU threads within an operator.

    Raises:
        UserError: Another provider ran a part of the model; names the operators and the provider.
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
    """Count the kernels in WORK that ran on another provider, by operator and provider."""
    found = Counter(
        (each.operator, each.provider)
        for each in kernels
        if each.operator in WORK and each.provider != provider
    )
    return dict(sorted(found.items()))
