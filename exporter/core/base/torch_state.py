"""The state of Python and PyTorch in which public functions run, whatever their caller has set."""

import functools
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

# Kinds of devices with an autocast of their own.
DEVICES = ("cpu", "cuda")
SEES_MODES = "sees_modes"
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
# Kernels of attention; each is switched on its own.
ATTENTION = ("flash", "mem_efficient", "math", "cudnn")


@contextmanager
def usual_torch() -> Iterator[None]:
    """Within the `with`, PyTorch computes as it does by default; then as its caller had it.

    New tensors are fp32 and on the CPU, gradients are on, products of fp32 are not rounded, and nothing is cast by
    itself. Algorithms may be nondeterministic, since some have no other form. Random numbers go on from where the
    caller's were. PyTorch is not imported for this: one that nobody has imported has its defaults.
    """
    torch: Any = sys.modules.get("torch")
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        if "numpy" in sys.modules:
            numbers: Any = sys.modules["numpy"].random
            stack.callback(numbers.set_state, numbers.get_state())
        if torch is not None:
            _enter_usual(stack, torch)
        yield


def _enter_usual(stack: ExitStack, torch: Any) -> None:
    has_gpus = torch.cuda.is_initialized()
    gpus = range(torch.cuda.device_count()) if has_gpus else ()
    stack.enter_context(torch.random.fork_rng(gpus))
    _set(stack, torch.get_default_dtype(), torch.float32, torch.set_default_dtype)
    precision = torch.get_float32_matmul_precision()
    _set(stack, precision, "highest", torch.set_float32_matmul_precision)
    kernels = torch.backends.cuda
    for name in ATTENTION:
        is_enabled = getattr(kernels, f"{name}_sdp_enabled")()
        _set(stack, is_enabled, True, getattr(kernels, f"enable_{name}_sdp"))
    mha = torch.backends.mha
    _set(stack, mha.get_fastpath_enabled(), True, mha.set_fastpath_enabled)
    mkldnn = torch.backends.mkldnn
    _set(stack, mkldnn.enabled, True, functools.partial(setattr, mkldnn, "enabled"))
    if torch.are_deterministic_algorithms_enabled():
        is_warning = torch.is_deterministic_algorithms_warn_only_enabled()
        restore = functools.partial(
            torch.use_deterministic_algorithms, True, warn_only=is_warning
        )
        stack.callback(restore)
        torch.use_deterministic_algorithms(False)
    if torch.is_anomaly_enabled():
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
    if torch.get_default_device().type != "cpu":
        stack.enter_context(torch.device("cpu"))
    for device in DEVICES:
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    if torch.is_inference_mode_enabled():
        stack.enter_context(torch.inference_mode(False))
    if not torch.is_grad_enabled():
        stack.enter_context(torch.enable_grad())


@contextmanager
def in_eval_mode(*modules: Any) -> Iterator[None]:
    """Within the `with`, modules are in eval mode and have no gradients; then as their owner had them."""
    parts = [part for module in modules for part in module.modules()]
    parameters = [parameter for module in modules for parameter in module.parameters()]
    modes = [(part, part.training) for part in parts]
    gradients = [
        (parameter, parameter.requires_grad, parameter.grad) for parameter in parameters
    ]
    try:
        for parameter in parameters:
            parameter.grad = None
        for module in modules:
            if any(part.training for part in module.modules()):
                with suppress(NotImplementedError):  # of what `torch.export` gives
                    module.eval()
        yield
    finally:
        for part, mode in modes:
            part.training = mode
        for parameter, needs_gradient, gradient in gradients:
            if parameter.requires_grad != needs_gradient:
                parameter.requires_grad_(needs_gradient)
            parameter.grad = gradient


# Held by the thread whose public function runs; that may call another.
_turn = threading.RLock()


def in_usual_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs in `usual_torch`, and leaves the modules that it is given as they are.

    Threads take turns: PyTorch's settings are those of the process, and an export changes a model while it runs.
    """

    @functools.wraps(function)
    def usual(*args: Any, **kwargs: Any) -> Any:
        modules = () if hasattr(function, SEES_MODES) else (*args, *kwargs.values())
        with _turn, usual_torch(), in_eval_mode(*_modules_in(modules)):
            return function(*args, **kwargs)

    return usual


def sees_modes(function: FunctionT) -> FunctionT:
    """Mark a function that must see in which modes its modules are, and leaves them so itself."""
    setattr(function, SEES_MODES, True)
    return function


def _modules_in(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the modules among values: alone, in a list, or behind an adapter, which has one as its `model`."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    for value in values:
        if isinstance(value, torch.nn.Module):
            yield value
        elif isinstance(value, list | tuple):
            yield from _modules_in(value)
        elif isinstance(getattr(value, "model", None), torch.nn.Module):
            yield value.model


def _set(
    stack: ExitStack, before: Any, usual: Any, setter: Callable[[Any], None]
) -> None:
    """Set a value that has no context of its own, until the stack ends."""
    if before != usual:
        stack.callback(setter, before)
        setter(usual)
