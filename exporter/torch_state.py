"""The state of PyTorch in which public functions run, whatever their caller has set."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

# Kinds of devices with an autocast of their own.
DEVICES = ("cpu", "cuda")


@contextmanager
def usual_torch() -> Iterator[None]:
    """Within the `with`, PyTorch computes as it does by default; then as its caller had it.

    New tensors are fp32 and on the CPU, gradients are on, products of fp32 are not rounded, and nothing is cast by
    itself. Algorithms may be nondeterministic, since some have no other form. PyTorch is not imported for this:
    one that nobody has imported has its defaults.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with ExitStack() as stack:
        _set(stack, torch.get_default_dtype(), torch.float32, torch.set_default_dtype)
        precision = torch.get_float32_matmul_precision()
        _set(stack, precision, "highest", torch.set_float32_matmul_precision)
        if torch.are_deterministic_algorithms_enabled():
            is_warning = torch.is_deterministic_algorithms_warn_only_enabled()
            restore = functools.partial(
                torch.use_deterministic_algorithms, True, warn_only=is_warning
            )
            stack.callback(restore)
            torch.use_deterministic_algorithms(False)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for device in DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        yield


def in_usual_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs in `usual_torch`."""

    @functools.wraps(function)
    def usual(*args: Any, **kwargs: Any) -> Any:
        with usual_torch():
            return function(*args, **kwargs)

    return usual


def _set(stack: ExitStack, before: Any, usual: Any, setter: Callable[[Any], None]) -> None:
    """Set a value that has no context of its own, until the stack ends."""
    if before != usual:
        stack.callback(setter, before)
        setter(usual)
