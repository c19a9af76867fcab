"""Ask TensorRT's inspector for the layers of every profile of an engine.

Without an execution context it states no types for tensors of dynamic sizes, and since TensorRT 10 it does not list
profiles apart: each profile is inspected through a context of its own, at the profile's largest sizes.
"""

from typing import Any

from exporter.errors import ArtefactError
from exporter.runtimes.tensorrt.tensorrt_api import member

__all__ = ["inspect_profiles"]

# CUDA's default stream: nothing runs on it here.
_STREAM = 0


def inspect_profiles(trt: Any, log: Any, plan: bytes) -> tuple[str, ...]:
    """Return the layers of each profile as the inspector's JSON.

    Args:
        trt: The module `tensorrt`.
        log: The logger that keeps TensorRT's last error.
        plan: A serialised engine, just built here.

    Raises:
        ArtefactError: TensorRT does not load the engine, or does not accept a profile's sizes.
    """
    runtime = trt.Runtime(log)
    # A version-compatible engine contains code, built here.
    runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise ArtefactError("the engine just built", log.last or "no reason", "one that loads")
    form = member(trt, "LayerInformationFormat", "JSON", "the audit")
    return tuple(
        _inspect(trt, log, engine, profile, form) for profile in range(engine.num_optimization_profiles)
    )


def _inspect(trt: Any, log: Any, engine: Any, profile: int, form: Any) -> str:
    """Inspect one profile. The context holds the activations' memory, so only one exists at a time."""
    context = engine.create_execution_context()
    if context is None or not _at_largest(trt, engine, context, profile):
        got = log.last or "no reason"
        raise ArtefactError(f"profile {profile} of the engine just built", got, "one that TensorRT can run")
    inspector = engine.create_engine_inspector()
    inspector.execution_context = context
    return str(inspector.get_engine_information(form))


def _at_largest(trt: Any, engine: Any, context: Any, profile: int) -> bool:
    """Set the profile and its largest input sizes; return whether TensorRT accepts them."""
    if not context.set_optimization_profile_async(profile, _STREAM):
        return False
    names = (engine.get_tensor_name(index) for index in range(engine.num_io_tensors))
    inputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
    return all(
        context.set_input_shape(name, engine.get_tensor_profile_shape(name, profile)[-1]) for name in inputs
    )
