"""`Runner` for ONNX Runtime with IO binding: images and logits stay on the device, as PyTorch's do in its table."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exporter.runtimes.base import Feed, Runner, TensorInfo
from exporter.runtimes.choice import PROVIDERS
from exporter.tensor_names import IMAGES, LOGITS

__all__ = ["BoundRunner"]

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
        """Store the settings; the model is read when the runner is entered.

        Args:
            path: The ONNX file, with the output `logits`.
            images: [batch, 3, H, W].
            runtime: One of PROVIDERS.
            options: Of the first provider, e.g. `enable_cuda_graph`.
            name: Name in errors and reports.
        """
        super().__init__(name)
        self._path, self._images, self._runtime, self._given = path, images, runtime, dict(options)
        self._device = "cuda" if runtime == "onnxruntime-cuda" else "cpu"
        self._session: Any = None
        self._binding: Any = None
        self._logits: Any = None

    def _activate(self) -> None:
        ort = importlib.import_module("onnxruntime")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # With the batch known, sizes are constants: a CUDA graph allows no operators on the CPU.
        options.add_free_dimension_override_by_name(BATCH, len(self._images))
        first, *rest = PROVIDERS[self._runtime]
        providers = [(first, self._given), *rest]
        session = ort.InferenceSession(str(self._path), options, providers=providers, enable_fallback=0)
        (output,) = session.get_outputs()
        shape = [len(self._images), output.shape[1]]
        self._logits = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, self._device, 0)
        self._binding = session.io_binding()
        images = ort.OrtValue.ortvalue_from_numpy(self._images, self._device, 0)
        self._binding.bind_ortvalue_input(IMAGES, images)
        self._binding.bind_ortvalue_output(LOGITS, self._logits)
        self._inputs = (TensorInfo(IMAGES, (BATCH, *self._images.shape[1:]), "float32"),)
        self._outputs = (TensorInfo(LOGITS, (BATCH, shape[1]), "float32"),)
        self._session = session

    def _deactivate(self) -> None:
        self._session = self._binding = self._logits = None

    def _run(self, feed: Feed) -> dict[str, np.ndarray]:
        del feed
        self._session.run_with_iobinding(self._binding)
        return {LOGITS: self._logits.numpy()}
