"""The targets: what each supports and refuses in one line, and its row by name."""

import re

import pytest

from exporter.core.base.errors import ModelError, RecipeError
from exporter.core.base.targets import (
    ONNXRUNTIME,
    OPENVINO,
    TARGETS,
    TENSORRT,
    Target,
    target_named,
)
from exporter.core.base.vocabulary import Layout

EACH = pytest.mark.parametrize(
    "target", TARGETS.values(), ids=lambda target: target.name
)


@EACH
def test_the_first_layout_is_the_default(target: Target) -> None:
    assert target.layout(None) == target.layouts[0]
    for layout in Layout:
        if layout in target.layouts:
            assert target.layout(str(layout)) is layout
        else:
            with pytest.raises(ModelError, match=f"layout {layout}"):
                target.layout(layout)


def test_a_layout_that_is_none() -> None:
    with pytest.raises(RecipeError, match="folded"):
        OPENVINO.layout("folded")


def test_a_top_k_that_a_runtime_cannot_return() -> None:
    TENSORRT.check_top_k(3840)
    ONNXRUNTIME.check_top_k(10**6)
    for target in (TENSORRT, TARGETS["tensorrt-int8"]):
        with pytest.raises(
            ModelError, match=r"a top-k of 3841 patches \| need at most 3840"
        ):
            target.check_top_k(3841)


def test_a_file_is_named_by_model_method_and_target() -> None:
    assert ONNXRUNTIME.file_name("vit", "a-star") == "vit.a-star.onnxruntime-fp32.onnx"


@EACH
def test_a_row_is_found_by_its_name(target: Target) -> None:
    assert target_named(target.name) is target
    assert target.name.startswith((target.runtime.name, "web-"))
    assert target.name.endswith("-".join(target.reduced) or "fp32")


@EACH
def test_an_opset_in_a_name_is_that_of_the_file(target: Target) -> None:
    """The pass `opset_17` writes its own, whatever the row's."""
    written = 17 if "opset_17" in target.passes else target.opset
    for named in re.findall(r"-opset(\d+)-", target.name):
        assert int(named) == written


def test_a_name_that_is_none() -> None:
    with pytest.raises(
        ModelError, match=r"target \| got 'abacus' \| need one of onnxruntime-fp32, "
    ):
        target_named("abacus")


@EACH
def test_ranges_are_of_static_quantization_alone(target: Target) -> None:
    assert not target.takes_ranges or target.precision in ("int8", "fp8")
    assert bool(target.quantization) == (target.precision in ("int8", "fp8"))


def test_newer_forms_name_their_first_version_and_what_to_take_before() -> None:
    fp8 = TARGETS["tensorrt-fp8"]
    assert (fp8.least_version, fp8.least_sm) == ((10, 6), (8, 9))
    for target in TARGETS.values():
        assert bool(target.least_version) == target.runtime.engines
        before, seen = target, [target]
        while before.instead:  # leads to one that 10.0 takes, on any GPU
            assert before.least_version >= TARGETS[before.instead].least_version
            before = TARGETS[before.instead]
            assert before not in seen
            seen.append(before)
        assert (before.least_version, before.least_sm) in (((), ()), ((10,), ()))
