"""TensorRT for RTX: build engines for GPUs that need not be here, and read what is in them.

It parses ONNX and builds ahead of time with neither GPU nor driver, for any of `COMPUTE_CAPABILITIES`; an engine is
compiled to the end where it first runs, and a runtime cache keeps what was compiled. Its Python API takes no
plugins. Its versions are its own: 1.7 is no TensorRT before 8. What runs an engine is unverified until it is run.

Its inspector needs a GPU too, so the layers are read from the engine's bytes: the text of a program lists its
tensors with their types, then its steps in order, each with its kernel, tensors and ONNX nodes. The text is that of
version 1.7, undocumented: where no program is found, that is an error, not an empty audit.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from exporter.core.base.errors import ArtefactError
from exporter.engines.builder import NO_WIDTHS, configure, parse, profile_of
from exporter.engines.layer_info import (
    SERVICE,
    UNSTATED,
    EngineLayer,
    EngineTensor,
    nodes_in,
    product_type,
)
from exporter.engines.settings import BuildSettings
from exporter.engines.tensorrt_api import error_log, started

# Warnings of the parser after which the engine computes something else than the file.
_WRONG = ("precision-lose casting", "Unused Input", "already exists")

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


def build_ahead(
    rtx: Any,
    onnx: Path,
    sm: int,
    settings: BuildSettings,
    widths: Mapping[str, int] = NO_WIDTHS,
) -> bytes:
    """Build an engine for a compute capability `sm`, 80 for 8.0, and return it serialised; see `build_engine`."""
    log = error_log(rtx, also=_WRONG)
    builder = started(rtx, "Builder", log)
    network = builder.create_network(0)
    parse(rtx, network, log, onnx)
    if log.cause:
        raise ArtefactError(onnx, log.cause, "a model that its parser takes as it is")
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(rtx.ComputeCapability, f"SM{sm}"), 0)
    configure(rtx, config, settings)
    for batches in settings.profiles:
        config.add_optimization_profile(profile_of(builder, network, batches, widths))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ArtefactError(
            onnx, log.cause or "no reason", "a model that TensorRT for RTX can build"
        )
    return bytes(plan)


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
            product=product_type(name, reads, writes) if kind in _PRODUCTS else "",
        )


def _tensors_of(
    side: re.Pattern[str], rest: str, tensors: Mapping[str, EngineTensor]
) -> tuple[EngineTensor, ...]:
    listed = side.search(rest)
    names = _QUOTED.findall(listed[1]) if listed else ()
    return tuple(tensors.get(name, EngineTensor(UNSTATED)) for name in names)
