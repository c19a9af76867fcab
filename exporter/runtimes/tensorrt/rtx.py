"""TensorRT for RTX: build engines for GPUs that need not be here, and run them on one that is.

It parses ONNX and builds ahead of time with neither GPU nor driver, for any of `COMPUTE_CAPABILITIES`; an engine is
compiled to the end where it first runs, and a runtime cache keeps what was compiled. Its Python API takes no
plugins. Its versions are its own: 1.7 is no TensorRT before 8. What runs an engine is unverified until it is run.

Its inspector needs a GPU too, so the layers are read from the engine's bytes: the text of a program lists its
tensors with their types, then its steps in order, each with its kernel, tensors and ONNX nodes. The text is that of
version 1.7, undocumented: where no program is found, that is an error, not an empty audit.
"""

import ctypes
import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from exporter.errors import ArtefactError, MissingDependencyError, UserError
from exporter.files import written_beside
from exporter.runtimes.base import Feed, Runner
from exporter.runtimes.tensorrt.builder import NO_WIDTHS, configure, parse, profile_of
from exporter.runtimes.tensorrt.gpu_timer import Cuda
from exporter.runtimes.tensorrt.layer_info import UNSTATED, EngineLayer, nodes_in
from exporter.runtimes.tensorrt.manifest import check_manifest, engine_path, profile_for
from exporter.runtimes.tensorrt.runner import LoadedEngine, this_machine
from exporter.runtimes.tensorrt.settings import BuildSettings
from exporter.runtimes.tensorrt.tensorrt_api import error_log, started
from exporter.tensor_names import IMAGES

# Warnings of the parser after which the engine computes something else than the file.
_WRONG = ("precision-lose casting", "Unused Input", "already exists")

# The steps of a profile, and the bytes of its activations.
Steps: TypeAlias = tuple[tuple[EngineLayer, ...], int]

_START = re.compile(rb"header \{\n  version = \d+\n")
_MAIN = re.compile(r"\nmain \{\n(.*?)\n\}\n", re.DOTALL)
_TENSOR = re.compile(
    r"^  (tensor|sub_tensor)=\{.* name=\"([^\"]*)\".* type=(\w+) \}$", re.MULTILINE
)
_STEP = re.compile(r"^  (\w+)=\{ name=\"?([^\" ]*)\"? (.*)\}$", re.MULTILINE)
_INPUTS = re.compile(r" ?(?:input_args|input)=\{([^}]*)\}")
_OUTPUTS = re.compile(r" ?(?:output_args|output)=\{([^}]*)\}")
_QUOTED = re.compile(r'"([^"]*)"')
_ACTIVATIONS = re.compile(r"region = \{ name=devmem size=(\d+)")

_TYPES = {"half": "fp16", "float": "fp32", "fp8_e4m3": "fp8"}
# Steps that compute nothing: they reserve memory, start the part of a graph whose sizes were not known
# before, or make one stream wait for another.
_SERVICE = frozenset({"allocate", "deallocate", "shape_call", "signal", "wait"})
# Kinds of steps that are a matrix product; a "runtime_fusion" is one with what stands around it.
_PRODUCTS = frozenset({"fully_connected", "runtime_fusion"})
_FUSED = "__myl_"


def import_rtx() -> Any:
    """Import the module `tensorrt_rtx`."""
    try:
        return importlib.import_module("tensorrt_rtx")
    except ModuleNotFoundError:
        raise MissingDependencyError("tensorrt_rtx", "tensorrt-rtx") from None
    except ImportError as error:
        raise UserError("tensorrt_rtx", str(error), "a library that loads") from None


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
        raise ArtefactError(str(onnx), log.cause, "a model that its parser takes as it is")
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(rtx.ComputeCapability, f"SM{sm}"), 0)
    configure(rtx, config, settings)
    for batches in settings.profiles:
        config.add_optimization_profile(profile_of(builder, network, batches, widths))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ArtefactError(
            str(onnx), log.cause or "no reason", "a model that TensorRT for RTX can build"
        )
    return bytes(plan)


def read_programs(plan: bytes) -> tuple[Steps, ...]:
    """Return the steps of each profile of a serialised engine, and the memory of its activations, in bytes."""
    starts = (found.start() for found in _START.finditer(plan))
    texts = (plan[start : plan.find(b"\0", start)].decode("latin-1") for start in starts)
    # The programs of single kernels lie in the plan too; they have no memory for activations of their own.
    programs = tuple(
        (_program(text), int(memory[1]))
        for text in texts
        if (memory := _ACTIVATIONS.search(text))
    )
    if not programs:
        raise ArtefactError(
            "the engine just built", "no program in it", "one of TensorRT for RTX 1.7"
        )
    return programs


def _program(text: str) -> tuple[EngineLayer, ...]:
    types = {name: _TYPES.get(kind, kind) for _, name, kind in _TENSOR.findall(text)}
    main = _MAIN.search(text)
    return tuple(_steps(_STEP.findall(main[1]) if main else [], types))


def _steps(
    found: list[tuple[str, str, str]], types: Mapping[str, str]
) -> Iterator[EngineLayer]:
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
    return (
        tuple(types.get(name, UNSTATED) for name in _QUOTED.findall(found[1])) if found else ()
    )


def _operands(kind: str, name: str, reads: tuple[str, ...], writes: tuple[str, ...]) -> str:
    """Return the type that a matrix product multiplies in; "" for another step.

    A fusion that casts before its product, "CastMulFc", multiplies in the type of its result.
    """
    if kind not in _PRODUCTS or not reads:
        return ""
    before = name.removeprefix(_FUSED).partition("Fc")[0] if name.startswith(_FUSED) else ""
    return writes[0] if "Cast" in before and writes else reads[0]


class RtxRunner(Runner):
    """The engine of this GPU's compute capability, among those that `build --runtime tensorrt-rtx` wrote."""

    def __init__(self, folder: Path, onnx: Path, *, name: str = "") -> None:
        """Store the folder of the engines and the ONNX file of which they were built; nothing is read yet."""
        super().__init__(name or onnx.stem)
        self._folder, self._onnx = folder, onnx
        self._stack = ExitStack()
        self._loaded: LoadedEngine | None = None
        self._context: Any = None

    def _activate(self) -> None:
        rtx = import_rtx()
        here = this_machine(rtx.__version__)
        path = engine_path(self._folder, self._onnx, sm=int(here.sm.replace(".", "")))
        manifest = check_manifest(path, self._onnx, here)
        log = error_log(rtx)
        engine = started(rtx, "Runtime", log).deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise ArtefactError(
                str(path), log.cause or "no reason", "an engine that loads here"
            )
        config = engine.create_runtime_config()
        cache, kept = config.create_runtime_cache(), path.with_suffix(".cache")
        if kept.is_file():
            cache.deserialize(kept.read_bytes())
        config.set_runtime_cache(cache)
        context = engine.create_execution_context(config)
        if context is None:
            raise ArtefactError(str(path), log.cause or "no reason", "an engine that runs here")
        self._stack.callback(_keep_cache, cache, kept)
        self._loaded, self._context = (
            LoadedEngine(path.name, rtx, engine, log, manifest),
            context,
        )
        self._inputs, self._outputs = (
            self._loaded.tensors("INPUT"),
            self._loaded.tensors("OUTPUT"),
        )

    def _deactivate(self) -> None:
        self._stack.close()
        self._loaded = self._context = None

    def _run(self, feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        assert self._loaded is not None
        context, cuda = self._context, Cuda()
        profile = profile_for(self._loaded.manifest, len(feed[IMAGES]), self.name)
        with ExitStack() as stack:
            stream = cuda.call("cudaStreamCreate")
            stack.callback(cuda.call, "cudaStreamDestroy", stream)
            if not context.set_optimization_profile_async(profile, int(stream)):
                raise UserError(self.name, f"not profile {profile}", "an engine that runs here")
            for name, array in feed.items():
                context.set_input_shape(name, array.shape)
                context.set_tensor_address(
                    name, _on_device(cuda, stack, np.ascontiguousarray(array))
                )
            places = {}
            for info in self._outputs:
                result = np.empty(tuple(context.get_tensor_shape(info.name)), info.dtype)
                places[info.name] = (_on_device(cuda, stack, result), result)
                context.set_tensor_address(info.name, places[info.name][0])
            if not context.execute_async_v3(int(stream)):
                raise UserError(self.name, "no run", "an engine that runs here")
            cuda.call("cudaStreamSynchronize", stream)
            back = cuda.runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
            for device, result in places.values():
                cuda.call("cudaMemcpy", result.ctypes.data, device, result.nbytes, back)
        return {name: result for name, (_, result) in places.items()}


def _keep_cache(cache: Any, path: Path) -> None:
    with written_beside(path) as partial:
        partial.write_bytes(bytes(cache.serialize()))


def _on_device(cuda: Cuda, stack: ExitStack, array: np.ndarray[Any, Any]) -> int:
    """Copy an array to the device; return the address, valid while the stack is open."""
    device = cuda.call("cudaMalloc", max(array.nbytes, 1))
    stack.callback(cuda.call, "cudaFree", device)
    kind = cuda.runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
    cuda.call(
        "cudaMemcpy", device, ctypes.c_void_p(array.ctypes.data).value, array.nbytes, kind
    )
    return int(device)
