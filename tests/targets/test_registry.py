"""The rows of targets: each found by its name, each asking for what there is."""

import pytest

from exporter.errors import ModelError
from exporter.targets import TARGETS, TENSORRT_8, Target, target_named

EACH = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)


@EACH
def test_a_row_is_found_by_its_name(target: Target) -> None:
    assert target_named(target.name) is target
    assert target.name.startswith(target.runtime)
    assert target.name.endswith("-".join(target.reduced) or "fp32")


def test_a_name_that_is_none() -> None:
    with pytest.raises(ModelError, match=r"target \| got 'abacus' \| need one of onnxruntime-fp32, "):
        target_named("abacus")


@EACH
def test_ranges_are_of_static_quantization_alone(target: Target) -> None:
    assert not target.takes_ranges or target.precision in ("int8", "fp8")
    assert bool(target.quantization) == (target.precision in ("int8", "fp8"))


def test_newer_forms_name_their_first_version_and_what_to_take_before() -> None:
    plugin, fp8 = TARGETS["tensorrt-plugin-fp16"], TARGETS["tensorrt-fp8"]
    assert (plugin.least_version, plugin.least_sm) == ((10, 7), ())
    assert (fp8.least_version, fp8.least_sm) == ((10, 6), (8, 9))
    for target in TARGETS.values():
        assert bool(target.least_version) == (target.runtime == "tensorrt" and target != TENSORRT_8)
        before, seen = target, [target]
        while before.instead:  # leads to one that any version takes
            assert before.least_version >= TARGETS[before.instead].least_version
            before = TARGETS[before.instead]
            assert before not in seen
            seen.append(before)
        assert before.least_version == before.least_sm == ()
