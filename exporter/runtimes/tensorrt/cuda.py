"""The one place that imports cuda-bindings: CUDA's runtime, whose every failure is one line."""

from typing import Any

from exporter.errors import MissingDependencyError, UserError

__all__ = ["Cuda"]


class Cuda:
    """Calls of CUDA's runtime by their names, e.g. `cuda.call("cudaMalloc", 1024)`."""

    def __init__(self) -> None:
        """Import it.

        Raises:
            MissingDependencyError: cuda-bindings is not installed.
        """
        try:
            from cuda.bindings import runtime  # noqa: PLC0415
        except ImportError:
            raise MissingDependencyError("cuda-bindings", "tensorrt") from None
        self.runtime: Any = runtime

    def call(self, name: str, *arguments: Any) -> Any:
        """What a function gives beside its status, None where that is nothing.

        Raises:
            UserError: The status is an error; in CUDA's words.
        """
        status, *values = getattr(self.runtime, name)(*arguments)
        if status != self.runtime.cudaError_t.cudaSuccess:
            raise UserError(name, self._words(status), "a call that CUDA takes")
        return values[0] if values else None

    def succeeds(self, name: str, *arguments: Any) -> bool:
        """Call where a failure is an answer."""
        status, *_ = getattr(self.runtime, name)(*arguments)
        return bool(status == self.runtime.cudaError_t.cudaSuccess)

    def _words(self, status: Any) -> str:
        _, text = self.runtime.cudaGetErrorString(status)
        return text.decode() if isinstance(text, bytes) else str(text)
