"""A PyTorch module behind the `Runner` interface: the reference that every other runtime is held to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exporter.errors import ModelError
from exporter.runtimes.base import Feed, Runner, TensorInfo

__all__ = ["TorchRunner"]


class TorchRunner(Runner):
    """A function from tensors by name to tensors by name.

    A module is called as it is, on the device it is on: put it in eval mode and on `device` first.
    """

    def __init__(
        self,
        module: Callable[[dict[str, Tensor]], Mapping[str, Tensor]],
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        *,
        name: str = "torch",
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        """Declare the module; nothing runs yet.

        Args:
            module: Takes the feed, returns at least one tensor for each of `outputs`.
            inputs: What it takes.
            outputs: What it returns.
            name: What errors and reports call it.
            device: Where the inputs go.
            threads: CPU threads within an operator; None leaves PyTorch's setting.

        Raises:
            ModelError: The module is in training mode, where two runs differ.
        """
        super().__init__(name)
        if isinstance(module, torch.nn.Module) and any(part.training for part in module.modules()):
            raise ModelError(name, "a module in training mode", "eval mode", "call .eval() first")
        self._module, self._inputs, self._outputs = module, tuple(inputs), tuple(outputs)
        self._device, self._threads = torch.device(device), threads

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """As declared."""
        return self._inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """As declared."""
        return self._outputs

    def _activate(self) -> None:
        """The module is in memory already."""

    def _deactivate(self) -> None:
        """The module belongs to the caller."""

    def _run(self, feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        with torch.inference_mode(), _threads(self._threads):
            results = self._module({name: self._tensor(array) for name, array in feed.items()})
            # Copying to the host waits for the device, so that a timed run ends with its work.
            return {name: tensor.cpu().numpy() for name, tensor in results.items()}

    def _tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        # PyTorch shares the memory, and refuses arrays that are read-only or run backwards.
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self._device)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """PyTorch's thread count is global: set it for one run, so that two runners never share a setting."""
    before = torch.get_num_threads()
    if count in (None, before):
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
