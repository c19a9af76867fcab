"""Measure the time of each kernel with ONNX Runtime's profiler, and check which execution provider ran it.

Nodes that a provider does not support run on the CPU.
"""

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.errors import UserError
from exporter.runtimes.base import Feed
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner

__all__ = ["Kernel", "kernels_of", "profile", "require_provider", "strays"]

_SUFFIX = "_kernel_time"


@dataclass(frozen=True)
class Kernel:
    """One node of the optimised graph: its mean time per run, and the execution provider that ran it."""

    name: str
    operator: str
    time_ms: float
    provider: str = ""


def profile(
    model: Path | bytes,
    feed: Feed,
    *,
    runs: int,
    warmup: int = 3,
    threads: int = 0,
    providers: Sequence[str] = ("CPUExecutionProvider",),
) -> tuple[Kernel, ...]:
    """Run a model in a new session with profiling on, which itself takes time.

    Args:
        model: A file, or its bytes.
        feed: The inputs of every run.
        runs: Runs to measure.
        warmup: Runs before them, not measured.
        threads: CPU threads within an operator; 0 is one per physical core.
        providers: Execution providers, the preferred one first.
    """
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "profile"
        runner = OnnxRuntimeRunner(model, threads=threads, profile_prefix=prefix, providers=providers)
        with runner:
            for _ in range(warmup + runs):
                runner.run(feed)
            trace = json.loads(runner.end_profiling().read_text(encoding="utf-8"))
    return kernels_of(trace, warmup)


def kernels_of(trace: Iterable[dict[str, Any]], warmup: int) -> tuple[Kernel, ...]:
    """Return the kernels of a profile in the order of their first run, without the first `warmup` runs.

    Args:
        trace: The profile's events; times in microseconds.
        warmup: Runs to leave out.
    """
    events = [event for event in trace if event.get("ph") == "X"]
    counted = sorted(event["ts"] for event in events if event["name"] == "model_run")[warmup:]
    total_us: dict[tuple[str, str, str], int] = defaultdict(int)
    for event in events:
        if event["name"].endswith(_SUFFIX) and counted and event["ts"] >= counted[0]:
            name, told = event["name"].removesuffix(_SUFFIX), event["args"]
            total_us[name, told["op_name"], told.get("provider", "")] += event["dur"]
    return tuple(
        Kernel(name, operator, time_us / len(counted) / 1e3, provider)
        for (name, operator, provider), time_us in total_us.items()
    )


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
