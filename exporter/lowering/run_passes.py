"""Run a target's passes in order. A failure here is a bug in star-export: RuntimeError names place and cause."""

import logging
import traceback
from collections.abc import Iterable

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.errors import UserError
from exporter.lowering.graph import markers, sort_nodes
from exporter.lowering.pass_table import FINAL, INITIAL, MARKERS, PASSES, QUANTIZABLE, Pass
from exporter.targets import Target

__all__ = ["check_passes", "run_passes"]

logger = logging.getLogger(__name__)


def check_passes(target: Target) -> None:
    """Check the order of a target's passes before any of them runs.

    Raises:
        RuntimeError: There is no such pass, or its requirements do not hold at its place.
    """
    holds = _check_each(target, target.passes, set(INITIAL))
    if target.quantization:
        _check(target, "the quantizer", QUANTIZABLE, holds)
    holds = _check_each(target, target.passes_after, holds)
    _check(target, "a shipped file", FINAL, holds)


def run_passes(graph: gs.Graph, artefact: Artefact, names: Iterable[str], *, clean: bool = True) -> None:
    """Run passes over a graph, each on the result of the one before.

    Args:
        graph: Changed in place.
        artefact: Describes the model being lowered.
        names: Names of the passes, in order.
        clean: Whether to remove nodes without a reader after each pass that changed something.

    Raises:
        RuntimeError: A pass failed, left a marker that it should have replaced, or found fewer places than the
            model has.
    """
    for name in names:
        changed = _run(graph, artefact, PASSES[name])
        if changed:
            if clean:
                graph.cleanup()
            sort_nodes(graph)
        logger.debug("%s: %d places", name, changed)


def _check_each(target: Target, names: Iterable[str], holds: set[str]) -> set[str]:
    """Return the conditions that hold after passes, given those before them."""
    for name in names:
        if name not in PASSES:
            raise RuntimeError(f"target {target.name}: no pass {name}, only {', '.join(PASSES)}")
        step = PASSES[name]
        _check(target, f"pass {name}", step.requires, holds)
        holds = holds - set(step.ends) | set(step.ensures)
    return holds


def _check(target: Target, what: str, requires: Iterable[str], holds: set[str]) -> None:
    missing = [each for each in requires if each not in holds]
    if missing:
        raise RuntimeError(
            f"target {target.name}: {what} requires what does not hold there: {'; '.join(missing)}"
        )


def _run(graph: gs.Graph, artefact: Artefact, step: Pass) -> int:
    where = f"target {artefact.target.name}: pass {step.name}"
    try:
        changed = step.run(graph, artefact)
        graph.tensors(check_duplicates=True)
    except UserError:
        raise
    except Exception as error:
        at = f" at {place}" if (place := _node_at(error)) else ""
        raise RuntimeError(f"{where} failed{at}: {type(error).__name__}: {error}") from error
    left = [node.name for kind in step.ends if kind in MARKERS for node in markers(graph, kind)]
    if left:
        raise RuntimeError(f"{where} left {', '.join(left)}")
    if changed < (least := step.least(artefact)):
        raise RuntimeError(f"{where} found {changed} places, not the {least} or more that the model has")
    return changed


def _node_at(error: Exception) -> str:
    """Return the node a pass was working on when it failed: the innermost local variable named `node`."""
    places = [frame.f_locals.get("node") for frame, _ in traceback.walk_tb(error.__traceback__)]
    nodes = [node for node in places if isinstance(node, gs.Node)]
    return f"{nodes[-1].op} {nodes[-1].name}" if nodes else ""
