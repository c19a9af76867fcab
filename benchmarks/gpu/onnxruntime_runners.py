"""DeiT on ONNX Runtime's CUDA provider, kernel by kernel or as one CUDA graph.

Images and logits stay on the device by IO binding, as PyTorch's do in its table.
"""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from case import Case, Timing, model_files
from deits import deit

from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_CUDA,
    ONNXRUNTIME_FP16,
    RUNTIMES,
)
from exporter.core.base.tensor_names import IMAGES, LOGITS
from exporter.core.base.vocabulary import Method
from exporter.core.verify.onnxruntime_runner import check_available, require_provider
from exporter.core.verify.runner import Feed, Runner, TensorInfo
from exporter.data.batches import noise
from exporter.measure.benchmark import throughput

GRAPH = "CUDA graph"
MODES = tuple(
    f"{way}, {precision}"
    for precision in ("fp16", "tf32", "fp32")
    for way in ("kernels", GRAPH)
)
METHODS = {"STAR 0.7": (Method.STAR, 0.7), "a-STAR 0.7": (Method.A_STAR, 0.7)}
CUDA = ONNXRUNTIME_CUDA.providers


# The batch dimension of the exported models.
BATCH = "batch"


class BoundRunner(Runner):
    """A model on fixed images on the device; a run ends with the copy of the logits. It ignores the feed."""

    def __init__(
        self,
        path: Path,
        images: np.ndarray,
        *,
        runtime: str = "onnxruntime-cuda",
        options: Mapping[str, str],
        name: str,
    ) -> None:
        """Store the settings; `options` are those of the first provider, e.g. `enable_cuda_graph`."""
        super().__init__(name)
        self._path = path
        self._images = images
        self._runtime = runtime
        self._given = dict(options)
        self._device = "cuda" if runtime == "onnxruntime-cuda" else "cpu"
        self._session: Any = None
        self._binding: Any = None
        self._logits: Any = None

    def _activate(self) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # With the batch known, sizes are constants: a CUDA graph allows no operators on the CPU.
        options.add_free_dimension_override_by_name(BATCH, len(self._images))
        first, *rest = RUNTIMES[self._runtime].providers
        providers = [(first, self._given), *rest]
        session = ort.InferenceSession(
            str(self._path), options, providers=providers, enable_fallback=0
        )
        (output,) = session.get_outputs()
        shape = [len(self._images), output.shape[1]]
        self._logits = ort.OrtValue.ortvalue_from_shape_and_type(
            shape, np.float32, self._device, 0
        )
        self._binding = session.io_binding()
        images = ort.OrtValue.ortvalue_from_numpy(self._images, self._device, 0)
        self._binding.bind_ortvalue_input(IMAGES, images)
        self._binding.bind_ortvalue_output(LOGITS, self._logits)
        self._inputs = (
            TensorInfo(IMAGES, (BATCH, *self._images.shape[1:]), "float32"),
        )
        self._outputs = (TensorInfo(LOGITS, (BATCH, shape[1]), "float32"),)
        self._session = session

    def _deactivate(self) -> None:
        self._session = self._binding = self._logits = None

    def _run(self, feed: Feed) -> dict[str, np.ndarray]:
        del feed
        self._session.run_with_iobinding(self._binding)
        return {LOGITS: self._logits.numpy()}


def require() -> None:
    """Raise UserError where ONNX Runtime has no CUDA provider."""
    check_available(CUDA, ort.get_available_providers())


def prepared(case: Case) -> Timing:
    """Create the runners of the dense model, timm's and the pruned ones; the result times them.

    Without a-STAR in a CUDA graph, which has no data-dependent sizes. UserError where another provider runs a
    part.
    """
    way, precision = case.mode.split(", ")
    methods = {
        name: choice
        for name, choice in METHODS.items()
        if way != GRAPH or choice[0] == Method.STAR
    }
    target = ONNXRUNTIME_FP16 if precision == "fp16" else ONNXRUNTIME
    options = {
        "use_tf32": str(int(precision == "tf32")),
        "enable_cuda_graph": str(int(way == GRAPH)),
    }
    runners: dict[str, Runner] = {}
    for name, path in model_files(
        case.model, methods, target, case.folder / "models"
    ).items():
        _require_gpu(path, case.model)
        runners[name] = BoundRunner(path, case.images, options=options, name=name)
    return partial(
        throughput,
        runners,
        {IMAGES: case.images},
        batch=case.batch,
        rounds=case.rounds,
        warmup=5,
    )


@cache
def _require_gpu(path: Path, model: str) -> None:
    """Check once for each file that the GPU runs it."""
    require_provider(path, CUDA, {IMAGES: noise(deit(model).spec, "float32", 1)})
