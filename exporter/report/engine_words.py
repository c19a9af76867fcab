"""What is said of engines: their audit, and the clocks of the GPU that ran them."""

from collections.abc import Mapping

from exporter.engines.audit import Audit
from exporter.engines.gpu import Clocks


def explain_audit(result: Audit) -> list[str]:
    """Format the audit as lines of text."""
    lines = [
        f"{result.layers} layers, outputs: {_by_type(result.written)}",
        f"{result.fused_kernels} fused attention kernels",
    ]
    if result.products:
        lines.append(f"matrix products: {_by_type(result.products)}")
    if result.moves is not None:
        lines.append(f"layers that only convert or copy: {result.moves}")
    if result.selection:
        counts = ", ".join(
            f"{count} in {layer}" for layer, count in result.selection.items()
        )
        lines.append(f"layers of the selection, by pruning layer: {counts}")
    if result.memory_bytes is not None:
        lines.append(
            f"memory of the activations: {result.memory_bytes / 2**20:.1f} MiB"
        )
    for gpu, milliseconds in result.estimated_ms.items():
        lines.append(f"estimated, not measured: {milliseconds:.2f} ms on {gpu}")
    lines += [f"not quantized: {product}" for product in result.unkept]
    for attention in result.blocks:
        if not attention.fused:
            parts = ", ".join(attention.parts) or "no layer that names its nodes"
            lines.append(f"block {attention.block}: attention is not fused: {parts}")
    return lines


def _by_type(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {dtype}" for dtype, count in counts.items())


def clock_words(clocks: Clocks) -> str:
    """Return the clocks in one line, with what held them down."""
    if not clocks.samples:
        return "unknown"
    sm = f"SM {clocks.sm_mhz:g} MHz (at least {clocks.least_sm_mhz:g}) of {clocks.most_sm_mhz:g}"
    words = f"{sm}, memory {clocks.memory_mhz:g} MHz, {clocks.power_w:g} W, {clocks.temperature_c:g} °C"
    if clocks.slowed_by:
        return f"{words}, slowed by {' and '.join(clocks.slowed_by)}"
    return words
