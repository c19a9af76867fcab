"""Read the steps of a built engine from its bytes, without a GPU: the engine's program is in them as text.

TensorRT's inspector needs a loaded engine, and loading needs a driver. The text of a program lists its tensors with
their types, then its steps in order, each with its kernel, its tensors and the ONNX nodes that it computes. It is
that of TensorRT for RTX 1.7, undocumented: where no program is found, that is an error, not an empty audit.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter.errors import ArtefactError
from exporter.runtimes.tensorrt.layer_info import UNKNOWN, EngineLayer, nodes_in

__all__ = ["Program", "read_programs"]

_START = re.compile(rb"header \{\n  version = \d+\n")
_MAIN = re.compile(r"\nmain \{\n(.*?)\n\}\n", re.DOTALL)
_TENSOR = re.compile(r"^  (tensor|sub_tensor)=\{.* name=\"([^\"]*)\".* type=(\w+) \}$", re.MULTILINE)
_STEP = re.compile(r"^  (\w+)=\{ name=\"?([^\" ]*)\"? (.*)\}$", re.MULTILINE)
_INPUTS = re.compile(r" ?(?:input_args|input)=\{([^}]*)\}")
_OUTPUTS = re.compile(r" ?(?:output_args|output)=\{([^}]*)\}")
_QUOTED = re.compile(r'"([^"]*)"')
_ACTIVATIONS = re.compile(r"region = \{ name=devmem size=(\d+)")

_TYPES = {"half": "fp16", "float": "fp32", "fp8_e4m3": "fp8"}
# Steps that compute nothing: they reserve memory, or start the part of a graph whose sizes were not known before.
_SERVICE = frozenset({"allocate", "deallocate", "shape_call"})
# Kinds of steps that are a matrix product; a "runtime_fusion" is one with what stands around it.
_PRODUCTS = frozenset({"fully_connected", "runtime_fusion"})
_FUSED = "__myl_"


@dataclass(frozen=True)
class Program:
    """The steps of one profile, and the bytes of its activations at its largest sizes; None where unknown."""

    steps: tuple[EngineLayer, ...]
    memory_bytes: int | None


def read_programs(plan: bytes) -> tuple[Program, ...]:
    """Return the program of each profile of a serialised engine, in the engine's order.

    Raises:
        ArtefactError: No program is found: the engine is of another form than this reads.
    """
    texts = (_text_at(plan, found.start()) for found in _START.finditer(plan))
    # The programs of single kernels lie in the plan too; they have no memory for activations of their own.
    programs = tuple(_program(text) for text in texts if _ACTIVATIONS.search(text))
    if not programs:
        raise ArtefactError("the engine just built", "no program in it", "one of TensorRT for RTX 1.7")
    return programs


def _text_at(plan: bytes, start: int) -> str:
    return plan[start : plan.find(b"\0", start)].decode("latin-1")


def _program(text: str) -> Program:
    types = {name: _TYPES.get(kind, kind) for _, name, kind in _TENSOR.findall(text)}
    main, memory = _MAIN.search(text), _ACTIVATIONS.search(text)
    steps = _STEP.findall(main[1]) if main else []
    return Program(tuple(_steps(steps, types)), int(memory[1]) if memory else None)


def _steps(found: list[tuple[str, str, str]], types: Mapping[str, str]) -> Iterator[EngineLayer]:
    for kind, name, rest in found:
        if kind in _SERVICE:
            continue
        reads, writes = (_types_of(side, rest, types) for side in (_INPUTS, _OUTPUTS))
        yield EngineLayer(
            name=name,
            kind=kind,
            tactic=name,
            nodes=nodes_in(rest),
            reads=reads,
            writes=writes,
            product=_operands(kind, name, reads, writes),
        )


def _types_of(side: re.Pattern[str], rest: str, types: Mapping[str, str]) -> tuple[str, ...]:
    found = side.search(rest)
    return tuple(types.get(name, UNKNOWN) for name in _QUOTED.findall(found[1])) if found else ()


def _operands(kind: str, name: str, reads: tuple[str, ...], writes: tuple[str, ...]) -> str:
    """Return the type that a matrix product multiplies in; "" for another step.

    A fusion that casts before its product, "CastMulFc", multiplies in the type of its result.
    """
    if kind not in _PRODUCTS or not reads:
        return ""
    before = name.removeprefix(_FUSED).partition("Fc")[0] if name.startswith(_FUSED) else ""
    return writes[0] if "Cast" in before and writes else reads[0]
