"""What a pass is: a function over the graph that does one thing and counts the places it did it in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import onnx_graphsurgeon as gs

from exporter.lowering.markers import DOMAIN
from exporter.records import ModelSpec, Schedule

__all__ = ["Facts", "Pass", "markers", "replace"]


@dataclass(frozen=True)
class Facts:
    """What a pass may know beside the graph."""

    spec: ModelSpec
    schedule: Schedule
    flavour: str = "shrinking"

    @property
    def follows_image(self) -> bool:
        """Whether token counts are known by the data alone."""
        return self.schedule.adaptive and self.flavour != "padded"


Pass: TypeAlias = Callable[[gs.Graph, Facts], int]


def markers(graph: gs.Graph, kind: str) -> Iterator[gs.Node]:
    """The `star` nodes of one kind, first block to last."""
    return iter([node for node in graph.nodes if node.op == kind and node.domain == DOMAIN])


def replace(graph: gs.Graph, old: gs.Node, new: list[gs.Node]) -> None:
    """Put `new` in the place of `old`; the last of `new` takes over its outputs."""
    place = next(index for index, node in enumerate(graph.nodes) if node is old)
    outputs = list(old.outputs)
    old.outputs.clear()
    old.inputs.clear()
    new[-1].outputs = outputs
    graph.nodes[place : place + 1] = new
