"""The record of a target: what it supports, and what it refuses in one line."""

import pytest

from exporter.errors import ModelError, RecipeError
from exporter.targets import ONNXRUNTIME, OPENVINO, TARGETS, TENSORRT_8, Target
from exporter.vocabulary import Layout, Method

EACH = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)


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


def test_a_method_that_a_runtime_cannot_follow() -> None:
    ONNXRUNTIME.check_method(Method.A_STAR)
    with pytest.raises(ModelError, match=r"tensorrt8-fp32 \| got method a-star \| need star"):
        TENSORRT_8.check_method(Method.A_STAR)
    for target in TARGETS.values():
        with pytest.raises(ModelError):
            target.check_method(Method.A_STAR_BATCH)


def test_a_top_k_that_a_runtime_cannot_return() -> None:
    TENSORRT_8.check_top_k(3840)
    ONNXRUNTIME.check_top_k(10**6)
    for target in (TENSORRT_8, TARGETS["tensorrt-int8"]):
        with pytest.raises(ModelError, match=r"a top-k of 3841 patches \| need at most 3840"):
            target.check_top_k(3841)


def test_a_file_is_named_by_model_method_and_target() -> None:
    assert ONNXRUNTIME.file_name("vit", "a-star") == "vit.a-star.onnxruntime-fp32.onnx"
