"""ONNX models of a few nodes: a linear classifier, and a pruned one with its two variants.

The pruned one takes 4x4 images and calls each pixel a patch. Layer 2 keeps 10 of 16 by channel 0, layer 4
keeps 6 of those by channel 1, and the mean of what is left goes through a linear classifier.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.core.base.targets import ONNXRUNTIME, TARGETS
from exporter.core.base.vocabulary import Precision

SIDE = 4
KEEP = {2: 10, 4: 6}
WEIGHT = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)
STORED = {
    Precision.FP32: TensorProto.FLOAT,
    Precision.FP16: TensorProto.FLOAT16,
    Precision.BF16: TensorProto.BFLOAT16,
    Precision.INT8: TensorProto.INT8,
    Precision.FP8: TensorProto.FLOAT8E4M3FN,
}
_IMAGES: list[str | int] = ["batch", 3, SIDE, SIDE]


def linear_classifier(
    batch: int | str = "batch",
    dtype: int = TensorProto.FLOAT,
    metadata: dict[str, str] | None = None,
) -> bytes:
    """Mean over pixels, then a linear layer."""
    nodes = [
        helper.make_node("Cast", ["images"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["pixels", "axes"], ["pooled"], keepdims=0),
        helper.make_node("MatMul", ["pooled", "weight"], ["logits"]),
    ]
    constants = {"weight": WEIGHT, "axes": np.array([2, 3])}
    logits_shape: list[str | int] = [batch, WEIGHT.shape[1]]
    images = helper.make_tensor_value_info("images", dtype, [batch, *_IMAGES[1:]])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits_shape)
    return _model(nodes, constants, [images], [logits], metadata)


def pruned_classifier(
    variant: str = "",
    dtype: int = TensorProto.FLOAT,
    metadata: dict[str, str] | None = None,
) -> bytes:
    """The shipped model, its "tracing" variant or its "forced" variant."""
    nodes = [
        helper.make_node("Cast", ["images"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["pixels", "flat"], ["planes"]),
        helper.make_node("Transpose", ["planes"], ["patches_0"], perm=[0, 2, 1]),
    ]
    constants = {
        "flat": np.array([0, 3, -1]),
        "axis": np.array([2]),
        "weight": WEIGHT,
        "one": np.array([1]),
    }
    tokens = "patches_0"
    for channel, (layer, count) in enumerate(KEEP.items()):
        constants |= {
            f"k_{layer}": np.array([count]),
            f"channel_{layer}": np.array(channel),
        }
        if variant != "forced":
            nodes += _selection(layer, tokens)
        nodes += [
            helper.make_node(
                "Unsqueeze", [f"keep_{layer:02d}", "axis"], [f"index_{layer}"]
            ),
            helper.make_node(
                "GatherND",
                [tokens, f"index_{layer}"],
                [f"patches_{layer}"],
                batch_dims=1,
            ),
        ]
        tokens = f"patches_{layer}"
    nodes += [
        helper.make_node("ReduceMean", [tokens, "one"], ["pooled"], keepdims=0),
        helper.make_node("MatMul", ["pooled", "weight"], ["logits"]),
    ]
    keeps = [
        helper.make_tensor_value_info(
            f"keep_{layer:02d}", TensorProto.INT64, ["batch", count]
        )
        for layer, count in KEEP.items()
    ]
    images = helper.make_tensor_value_info("images", dtype, _IMAGES)
    logits = helper.make_tensor_value_info(
        "logits", TensorProto.FLOAT, ["batch", WEIGHT.shape[1]]
    )
    inputs = [images, *keeps] if variant == "forced" else [images]
    outputs = [logits, *keeps] if variant == "tracing" else [logits]
    return _model(nodes, constants, inputs, outputs, metadata)


def _selection(layer: int, tokens: str) -> list[onnx.NodeProto]:
    """The best by one channel, then in ascending position."""
    return [
        helper.make_node(
            "Gather", [tokens, f"channel_{layer}"], [f"score_{layer}"], axis=2
        ),
        helper.make_node(
            "TopK",
            [f"score_{layer}", f"k_{layer}"],
            [f"best_{layer}", f"order_{layer}"],
            axis=1,
        ),
        helper.make_node(
            "TopK",
            [f"order_{layer}", f"k_{layer}"],
            [f"keep_{layer:02d}", f"rank_{layer}"],
            axis=1,
            largest=0,
        ),
    ]


def _stored(metadata: dict[str, str]) -> onnx.TensorProto:
    """A weight of the precision that the target's files have."""
    target = TARGETS.get(metadata.get("star_export.target", ""), ONNXRUNTIME)
    return helper.make_tensor("stored", STORED[target.precision], [1], [0])


def _model(
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    metadata: dict[str, str] | None = None,
) -> bytes:
    weights = [
        numpy_helper.from_array(value, name) for name, value in constants.items()
    ]
    weights.append(_stored(metadata or {}))
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, weights)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    helper.set_model_props(model, metadata or {})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def noise(batch: int = 2) -> np.ndarray:
    """Images that these models take."""
    return (
        np.random.default_rng(0)
        .standard_normal((batch, 3, SIDE, SIDE))
        .astype(np.float32)
    )
