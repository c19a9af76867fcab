"""`Runner` for OpenVINO on the CPU. It refuses a file with a precision that the CPU does not compute in."""

from collections import OrderedDict
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from exporter.core.base.errors import ArtefactError, UserError, imported
from exporter.core.base.machine import within_quota
from exporter.core.base.tensor_names import Array
from exporter.core.verify.runner import Feed, Runner, TensorInfo

_DEVICE = "CPU"

PRECISIONS = ("fp32", "bf16", "fp16", "int8")

# Batch sizes for which a model is compiled at the same time; each has its own copy of the weights.
_SIZES = 4


class OpenVinoRunner(Runner):
    """An ONNX model, from a file or from memory, compiled at the first run of each batch size.

    With a fixed batch OpenVINO plans its memory and its kernels once: up to a tenth faster than with a dynamic one.
    The file states the precision of every node. OpenVINO computes in fp32 what is bf16 if the CPU has no
    instructions for it; this runner raises an error.
    """

    def __init__(
        self, model: Path | bytes, *, name: str = "", threads: int = 0
    ) -> None:
        """Store the settings; the model, a file or the bytes of one, is read when the runner is entered.

        `threads` are CPU threads; 0 is OpenVINO's default, one per physical core. `name` is by default the
        file's.
        """
        self._source = (
            str(model) if isinstance(model, Path) else name or "an ONNX model in memory"
        )
        super().__init__(
            name or (model.name if isinstance(model, Path) else "openvino")
        )
        self._model = model
        self._threads = within_quota(threads)
        self._fixed: Collection[int] | None = None
        self._network: Any = None
        # By batch size, -1 for a dynamic one; the latest last.
        self._requests: OrderedDict[int, Any] = OrderedDict()

    @override
    def fix(self, batches: Collection[int]) -> None:
        self._fixed = batches

    def _activate(self) -> None:
        try:
            self._network = _core().read_model(self._model)
        except RuntimeError as error:
            raise ArtefactError(
                self._source, _reason(error), "an ONNX model that OpenVINO loads"
            ) from None
        self._check_precision(self._network)
        self._inputs = tuple(_info(port) for port in self._network.inputs)
        self._outputs = tuple(_info(port) for port in self._network.outputs)

    def _deactivate(self) -> None:
        self._requests.clear()
        self._network = None

    def _run(self, feed: Feed) -> dict[str, Array]:
        request = self._request_of(len(feed[self._inputs[0].name]))
        try:
            results = request.infer(dict(feed), share_inputs=True)
        except RuntimeError as error:
            raise ArtefactError(
                self._source, _reason(error), "a model that accepts these inputs"
            ) from None
        return {info.name: results[info.name] for info in self._outputs}

    def _request_of(self, batch: int) -> Any:
        """Return the request of a batch size; the size that was used least recently is forgotten."""
        if self._fixed is not None and batch not in self._fixed:
            batch = -1
        if batch not in self._requests:
            self._requests[batch] = self._compiled(batch).create_infer_request()
        self._requests.move_to_end(batch)
        if len(self._requests) > _SIZES:
            self._requests.popitem(last=False)
        return self._requests[batch]

    def _compiled(self, batch: int) -> Any:
        fixed = self._network.clone()
        shapes = {port: port.get_partial_shape() for port in fixed.inputs}
        for shape in shapes.values():
            shape[0] = batch
        try:
            fixed.reshape(shapes)
            return _core().compile_model(fixed, _DEVICE, self._options())
        except RuntimeError as error:
            raise ArtefactError(
                self._source, _reason(error), "an ONNX model that OpenVINO loads"
            ) from None

    def _options(self) -> dict[str, Any]:
        return {
            "INFERENCE_PRECISION_HINT": "f32",  # what is fp32 in the file stays fp32
            "EXECUTION_MODE_HINT": "PERFORMANCE",
            "PERFORMANCE_HINT": "LATENCY",  # one request at a time, on all threads
            "NUM_STREAMS": 1,
            **({"INFERENCE_NUM_THREADS": self._threads} if self._threads else {}),
        }

    def _check_precision(self, model: Any) -> None:
        has = openvino_precisions()
        kinds = {
            port.get_element_type().get_type_name()
            for node in model.get_ops()
            for port in node.outputs()
        }
        if "bf16" in kinds and "bf16" not in has:
            got = f"a CPU with {', '.join(has)}"
            raise UserError(f"{self.name}: bf16", got, "one that computes in bf16")


def openvino_precisions() -> tuple[str, ...]:
    """Return the precisions that OpenVINO supports on this CPU."""
    has = _core().get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES")
    return tuple(name for name in PRECISIONS if name.upper() in has)


def _core() -> Any:
    return _core_of(imported("openvino", "openvino", "openvino"))


@cache
def _core_of(openvino: Any) -> Any:
    """Return the core of this process, which lives as long as it does.

    A core makes the thread hear signals on a stack of its own. Of two cores that end in the order of their making,
    OpenVINO 2026.4 leaves the thread the freed stack of one: the next signal, such as Ctrl-C, ends the process.
    """
    return openvino.Core()


def _info(port: Any) -> TensorInfo:
    """Describe a tensor. OpenVINO does not name dynamic sizes; lowering makes axis 0 the batch."""
    shape = tuple(
        ("batch" if axis == 0 else "") if size.is_dynamic else size.get_length()
        for axis, size in enumerate(port.get_partial_shape())
    )
    return TensorInfo(
        port.get_any_name(), shape, np.dtype(port.get_element_type().to_dtype()).name
    )


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
