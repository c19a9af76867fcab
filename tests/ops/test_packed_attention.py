"""Attention of packed tokens by its function: what a loop over images computes, in either precision."""

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import parser

from exporter.ops.packed_attention import FORMS, packed_attention_function
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner

HEADS, SIZE = 2, 3
ATTRIBUTES = ", ".join(f'{name} = "{value}"' for name, value in FORMS.items())


def model_of(kind: str, opset: int) -> onnx.ModelProto:
    tokens = ", ".join(f"{kind}[n{each}, {HEADS}, {SIZE}] {each}" for each in "qkv")
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, "trt": 1]> packed ({tokens}, int32[c] a, int32[c] b)'
        f" => ({kind}[n, {HEADS}, {SIZE}] y) {{ y = trt.TRT_Attention <{ATTRIBUTES}> (q, k, v, , a, b) }}"
    )
    model.functions.append(packed_attention_function(opset))
    onnx.checker.check_model(model, full_check=True)
    return model


def packed(query: np.ndarray, key: np.ndarray, value: np.ndarray, ends: list[np.ndarray]) -> np.ndarray:
    """Attention of each image's queries to its own keys, in float64."""
    images = []
    for (start, stop), (first, last) in zip(*map(pairwise, ends), strict=True):
        logits = np.einsum("qhc,khc->hqk", query[start:stop], key[first:last], dtype=np.float64)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        images.append(np.einsum("hqk,khc->qhc", weights, value[first:last]))
    return np.concatenate(images)


@pytest.mark.ort
@pytest.mark.parametrize(
    ("kind", "dtype", "close"), [("float", np.dtype("float32"), 1e-5), ("float16", np.dtype("float16"), 5e-3)]
)
@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [([4, 1, 6], [4, 1, 6]), ([5], [5]), ([2, 2], [2, 2]), ([1, 3], [4, 2])],
    ids=["several lengths", "one image", "one length", "other keys"],
)
def test_each_image_attends_to_its_own_tokens(
    kind: str, dtype: np.dtype, close: float, opset: int, queries: list[int], keys: list[int]
) -> None:
    rng = np.random.default_rng(0)
    tokens = (rng.standard_normal((sum(each), HEADS, SIZE)) for each in (queries, keys, keys))
    query, key, value = (each.astype(dtype) for each in tokens)
    ends = [np.cumsum([0, *each], dtype=np.int32) for each in (queries, keys)]
    feed = {"q": query, "k": key, "v": value, "a": ends[0], "b": ends[1]}
    with OnnxRuntimeRunner(model_of(kind, opset).SerializeToString(), name="packed") as runner:
        found = runner.run(feed)["y"]
    assert (found.dtype, found.shape) == (dtype, query.shape)
    np.testing.assert_allclose(found, packed(query, key, value, ends), rtol=close, atol=close)
