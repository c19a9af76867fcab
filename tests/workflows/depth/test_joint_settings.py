"""One limit: multiply-adds or a latency."""

import pytest

from exporter.errors import RecipeError
from exporter.workflows.depth.joint_settings import JointSettings


@pytest.mark.parametrize("limits", [{}, {"mac_reduction": 0.5, "max_ms": 3.0}])
def test_exactly_one_limit_is_given(limits: dict[str, float]) -> None:
    assert JointSettings(max_ms=3.0).max_ms == 3.0
    with pytest.raises(RecipeError, match="either mac_reduction or max_ms"):
        JointSettings(**limits)
