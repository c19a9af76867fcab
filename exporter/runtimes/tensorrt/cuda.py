"""The CUDA runtime through cuda-bindings, with one-line errors. Only this file imports cuda-bindings."""

from typing import Any

from exporter.errors import MissingDependencyError, UserError

__all__ = ["Cuda"]


class Cuda:
    """Calls functions of the CUDA runtime by name, e.g. `cuda.call("cudaMalloc", 1024)`."""

    def __init__(self) -> None:
        """Import the CUDA runtime.

        Raises:
            MissingDependencyError: cuda-bindings is not installed.
        """
        try:
            from cuda.bindings import runtime  # noqa: PLC0415
        except ImportError:
            raise MissingDependencyError("cuda-bindings", "tensorrt") from None
        self.runtime: Any = runtime

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function and return its first result after the status, or None if there is none.

        Raises:
            UserError: The status is an error; quotes CUDA's message.
        """
        status, *values = getattr(self.runtime, name)(*arguments)
        if status != self.runtime.cudaError_t.cudaSuccess:
            raise UserError(name, self._words(status), "a call that succeeds")
        return values[0] if values else None

    def succeeds(self, name: str, *arguments: Any) -> bool:
        """Call a function and return whether it succeeded."""
        status, *_ = getattr(self.runtime, name)(*arguments)
        return bool(status == self.runtime.cudaError_t.cudaSuccess)

    def _words(self, status: Any) -> str:
        _, text = self.runtime.cudaGetErrorString(status)
        return text.decode() if isinstance(text, bytes) else str(text)
