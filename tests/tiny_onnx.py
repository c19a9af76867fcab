"""ONNX models of a few nodes: a linear classifier, and a pruned one with its two variants.

The pruned one takes 4x4 images and calls each pixel a patch. Layer 2 keeps 10 of 16 by channel 0, layer 4
keeps 6 of those by channel 1, and the mean of what is left goes through a linear classifier.
"""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from exporter.core.base.targets import ONNXRUNTIME, TARGETS
from exporter.core.base.vocabulary import InputKind, Precision

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


def linear_classifier(
    batch: int | str = "batch",
    kind: InputKind = InputKind.FLOAT32,
    metadata: dict[str, str] | None = None,
) -> bytes:
    """Mean over pixels, then a linear layer."""
    return _model(
        [_images(kind, batch)],
        [f"float[{batch}, {WEIGHT.shape[1]}] logits"],
        ["pooled = ReduceMean <keepdims = 0> (pixels, axes)"],
        {"weight": WEIGHT, "axes": np.array([2, 3])},
        metadata,
    )


def pruned_classifier(
    variant: str = "",
    kind: InputKind = InputKind.FLOAT32,
    metadata: dict[str, str] | None = None,
) -> bytes:
    """The shipped model, its "tracing" variant or its "forced" variant."""
    nodes = [
        "planes = Reshape (pixels, flat)",
        "patches_0 = Transpose <perm = [0, 2, 1]> (planes)",
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
        if variant != "forced":  # the best by one channel, then in ascending position
            nodes += [
                f"score_{layer} = Gather <axis = 2> ({tokens}, channel_{layer})",
                f"best_{layer}, order_{layer} = TopK <axis = 1> (score_{layer}, k_{layer})",
                f"keep_{layer:02d}, rank_{layer} = TopK <axis = 1, largest = 0> (order_{layer}, k_{layer})",
            ]
        nodes += [
            f"index_{layer} = Unsqueeze (keep_{layer:02d}, axis)",
            f"patches_{layer} = GatherND <batch_dims = 1> ({tokens}, index_{layer})",
        ]
        tokens = f"patches_{layer}"
    nodes.append(f"pooled = ReduceMean <keepdims = 0> ({tokens}, one)")
    keeps = [f"int64[batch, {count}] keep_{layer:02d}" for layer, count in KEEP.items()]
    inputs = [_images(kind), *(keeps if variant == "forced" else [])]
    logits = f"float[batch, {WEIGHT.shape[1]}] logits"
    outputs = [logits, *(keeps if variant == "tracing" else [])]
    return _model(inputs, outputs, nodes, constants, metadata)


def _images(kind: InputKind, batch: int | str = "batch") -> str:
    return f"{kind.removesuffix('32')}[{batch}, 3, {SIDE}, {SIDE}] images"


def _stored(metadata: dict[str, str]) -> onnx.TensorProto:
    """A weight of the precision that the target's files have."""
    target = TARGETS.get(metadata.get("star_export.target", ""), ONNXRUNTIME)
    return helper.make_tensor("stored", STORED[target.precision], [1], [0])


def _model(
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Sequence[str],
    constants: dict[str, np.ndarray],
    metadata: dict[str, str] | None,
) -> bytes:
    """The nodes between the pixels as floats and the linear layer, as ONNX text."""
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> tiny ({", ".join(inputs)}) => ({", ".join(outputs)})'
        f" {{ pixels = Cast <to = 1> (images) {' '.join(nodes)} logits = MatMul (pooled, weight) }}"
    )
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    model.graph.initializer.append(_stored(metadata or {}))
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
