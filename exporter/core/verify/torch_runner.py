"""`Runner` for a PyTorch module: the reference with which every other runtime is compared."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from exporter.core.base.errors import ModelError
from exporter.core.base.tensor_names import Array
from exporter.core.verify.runner import Feed, Runner, TensorInfo


class TorchRunner(Runner):
    """A function or module that maps tensors by name to tensors by name.

    The runner does not move or change a module: put it in eval mode and on `device` first.
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
        """Store the module, which takes the feed and returns a tensor for each of `outputs`; nothing runs yet.

        Inputs are copied to `device`. `threads` are CPU threads within an operator; None keeps PyTorch's
        setting.
        """
        super().__init__(name, inputs, outputs)
        if isinstance(module, torch.nn.Module) and any(
            part.training for part in module.modules()
        ):
            raise ModelError(
                name, "a module in training mode", "eval mode", "call .eval() first"
            )
        self._module = module
        self._device = torch.device(device)
        self._threads = threads

    def _run(self, feed: Feed) -> dict[str, Array]:
        with torch.inference_mode(), _threads(self._threads):
            results = self._module(
                {name: self._tensor(array) for name, array in feed.items()}
            )
            # Copying to the host waits for the device, so that a timed run includes all of its work.
            return {name: tensor.cpu().numpy() for name, tensor in results.items()}

    def _tensor(self, array: Array) -> Tensor:
        # PyTorch shares the memory, and rejects arrays that are read-only or have negative strides.
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(
            self._device
        )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Set PyTorch's global thread count for one run, so that two runners never share a setting."""
    before = torch.get_num_threads()
    if count in (None, before):
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
