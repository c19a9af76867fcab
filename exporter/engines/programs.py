"""The layers of an engine of TensorRT for RTX, which has no inspector without a GPU, from the engine's bytes.

The text of a program lists its tensors with their types, then its steps in order, each with its kernel, tensors and
ONNX nodes. The text is that of version 1.7, undocumented: where no program is found, that is an error, not an empty
audit. What runs an engine is compiled where it first runs, and unverified until then.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from exporter.core.base.errors import ArtefactError
from exporter.engines.layers import (
    FUSION,
    SERVICE,
    UNSTATED,
    EngineLayer,
    EngineTensor,
    nodes_in,
)

# The steps of a profile, and the bytes of its activations.
Steps: TypeAlias = tuple[tuple[EngineLayer, ...], int]

_START = re.compile(rb"header \{\n  version = \d+\n")
_MAIN = re.compile(r"\nmain \{\n(.*?)\n\}\n", re.DOTALL)
_TENSOR = re.compile(
    r"^  (?:tensor|sub_tensor)=\{.* dims=\{([^}]*)\}.* name=\"([^\"]*)\".* type=(\w+) \}$",
    re.MULTILINE,
)
_STEP = re.compile(r"^  (\w+)=\{ name=\"?([^\" ]*)\"? (.*)\}$", re.MULTILINE)
_INPUTS = re.compile(r" ?(?:input_args|input)=\{([^}]*)\}")
_OUTPUTS = re.compile(r" ?(?:output_args|output)=\{([^}]*)\}")
_QUOTED = re.compile(r'"([^"]*)"')
_ACTIVATIONS = re.compile(r"region = \{ name=devmem size=(\d+)")

_TYPES = {"half": "fp16", "float": "fp32", "fp8_e4m3": "fp8"}
# Kinds of steps that are a matrix product; a "runtime_fusion" is one with what stands around it.
_PRODUCTS = frozenset({"fully_connected", "runtime_fusion"})


def read_programs(plan: bytes) -> tuple[Steps, ...]:
    """Return the steps of each profile of a serialised engine, and the memory of its activations, in bytes."""
    programs = list[Steps]()
    for match in _START.finditer(plan):
        start = match.start()
        text = plan[start : plan.find(b"\0", start)].decode("latin-1")
        memory = _ACTIVATIONS.search(text)
        # The programs of single kernels lie in the plan too: they have no memory for activations.
        if memory:
            programs.append((_program(text), int(memory[1])))
    if not programs:
        raise ArtefactError(
            "the engine just built", "no program in it", "one of TensorRT for RTX 1.7"
        )
    return tuple(programs)


def _program(text: str) -> tuple[EngineLayer, ...]:
    tensors = {}
    for sizes, name, kind in _TENSOR.findall(text):
        tensors[name] = EngineTensor(
            _TYPES.get(kind, kind), tuple(map(int, sizes.split()))
        )
    main = _MAIN.search(text)
    return tuple(_steps(_STEP.findall(main[1]) if main else [], tensors))


def _steps(
    steps: list[tuple[str, str, str]], tensors: Mapping[str, EngineTensor]
) -> Iterator[EngineLayer]:
    for kind, name, rest in steps:
        if kind in SERVICE:
            continue
        reads, writes = (
            _tensors_of(side, rest, tensors) for side in (_INPUTS, _OUTPUTS)
        )
        yield EngineLayer(
            name=name,
            kind=kind,
            tactic=name,
            nodes=nodes_in(rest),
            reads=reads,
            writes=writes,
            product=_product_type(name, reads, writes) if kind in _PRODUCTS else "",
        )


def _tensors_of(
    side: re.Pattern[str], rest: str, tensors: Mapping[str, EngineTensor]
) -> tuple[EngineTensor, ...]:
    listed = side.search(rest)
    names = _QUOTED.findall(listed[1]) if listed else ()
    return tuple(tensors.get(name, EngineTensor(UNSTATED)) for name in names)


def _product_type(
    name: str, reads: Sequence[EngineTensor], writes: Sequence[EngineTensor]
) -> str:
    """Return the type that a matrix product multiplies in: that of its first operand.

    A fusion that casts before its product, "CastMulFc", multiplies in the type of its result.
    """
    before = name.partition("Fc")[0] if name.startswith(FUSION) else ""
    tensors = writes if "Cast" in before and writes else reads
    return tensors[0].dtype if tensors else UNSTATED
