"""ONNX Runtime's messages: one line, and what to do where that is known."""

from exporter.runtimes.onnxruntime.errors import message_of, refusal


def test_a_runtime_that_is_too_old_is_one_line() -> None:
    """The words are those of ONNX Runtime 1.20.1."""
    told = "Load model from vit.onnx failed: Opset 23 is under development and support for this is limited."
    expected = (
        "vit.onnx | got opset 23 for ONNX Runtime 1.20.1 | need ONNX Runtime >= 1.23"
        " | or an export with --target onnxruntime-opset17-fp32"
    )
    assert str(refusal("vit.onnx", told, "1.20.1")) == expected
    assert "an ONNX model that loads" in str(refusal("vit.onnx", told.replace("23", "99"), "1.31.1"))


def test_a_reason_has_no_codes_and_no_line_breaks() -> None:
    told = RuntimeError("[ONNXRuntimeError] : 1 : FAIL : no such\n operator : Foo")
    assert message_of(told) == "FAIL : no such operator : Foo"
