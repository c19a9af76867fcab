"""An engine with several profiles and its inspector, which tells types only for a context with all its shapes."""

import json
from types import SimpleNamespace
from typing import Any

IO_MODES = SimpleNamespace(INPUT="IN", OUTPUT="OUT")
UNTOLD = "N/A due to dynamic shapes"


class Context:
    """An execution context: it needs a profile, then the sizes of every input within that profile."""

    def __init__(self, engine: "InspectedEngine") -> None:
        self._engine = engine
        self.profile: int | None = None
        self.shape: tuple[int, ...] | None = None

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self.profile = profile_index
        return not self._engine.refuses

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert self.profile is not None
        fits = tuple(shape) == self._engine.largest(self.profile)
        self.shape = tuple(shape) if fits else None
        return fits


class InspectedEngine:
    """Images in, logits out. Profile i has a layer `gemm i`, fused attention in the first profile alone."""

    num_io_tensors = 2

    def __init__(self, batches: tuple[int, ...], *, refuses: bool = False) -> None:
        self.batches, self.refuses = batches, refuses

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.batches)

    def largest(self, profile: int) -> tuple[int, ...]:
        return (self.batches[profile], 3, 4, 4)

    def get_tensor_name(self, index: int) -> str:
        return ("images", "logits")[index]

    def get_tensor_mode(self, name: str) -> str:
        return "IN" if name == "images" else "OUT"

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        return [self.largest(profile_index)] * 3

    def create_execution_context(self) -> Context:
        return Context(self)

    def create_engine_inspector(self) -> Any:
        inspector = SimpleNamespace(execution_context=None)
        inspector.get_engine_information = lambda form: self._told(inspector.execution_context)
        return inspector

    def _told(self, context: Context | None) -> str:
        ready = context is not None and context.shape is not None
        number = context.profile if context is not None and context.profile is not None else 0
        names = [f"gemm {number}", *(["_gemm_mha_v2"] if number == 0 else [])]
        outputs = [{"Format/Datatype": "Float" if ready else UNTOLD}]
        return json.dumps(
            {"Layers": [{"Name": name, "LayerType": "gemm", "Outputs": outputs} for name in names]}
        )
