"""TensorRT's attention of packed tokens as an ONNX local function: each image's tokens attend to each other.

TensorRT from 11.1 on makes IAttention of the node and does not read the body. Any other runtime runs it.
"""

import onnx
from onnx import parser

__all__ = ["FORMS", "TRT", "TRT_ATTENTION", "packed_attention_function"]

# TensorRT's parser looks at the name alone; ONNX's checker wants a domain, which NVIDIA's tools write like this.
TRT, TRT_ATTENTION = "trt", "TRT_Attention"
FORMS = {"query_form": "packed_nhd", "kv_form": "packed_nhd", "causal_kind": "none"}

CONSTANTS = """
   no_axes = Constant <value_ints: ints = [-1]> ()
   first = Constant <value_ints: ints = [0]> ()
   second = Constant <value_ints: ints = [1]> ()
   heads_and_rows = Constant <value_ints: ints = [1, 2]> ()
   end = Constant <value_ints: ints = [4611686018427387904]> ()
   zero_long = Constant <value_int: int = 0> ()
   one_long = Constant <value_int: int = 1> ()
   zero = Cast <to: int = 6> (zero_long)
   one = Cast <to: int = 6> (one_long)
   excluded = Constant <value_float: float = -inf> ()
"""

ATTENTION = """
   query = Transpose <perm: ints = [0, 2, 1, 3]> (q_grid)
   key = Transpose <perm: ints = [0, 2, 3, 1]> (k_grid)
   value = Transpose <perm: ints = [0, 2, 1, 3]> (v_grid)
   logits = MatMul (query, key)
   mask = Unsqueeze (kv_live, heads_and_rows)
   lowest = CastLike (excluded, logits)
   masked = Where (mask, logits, lowest)
   weights = Softmax <axis: int = -1> (masked)
   context = MatMul (weights, value)
   tokens = Transpose <perm: ints = [0, 2, 1, 3]> (context)
   heads = Shape <start: int = 1> (Q)
   shape = Concat <axis: int = 0> (no_axes, heads)
   flat = Reshape (tokens, shape)
   flat_live = Reshape (q_live, no_axes)
   nonzero = NonZero (flat_live)
   places = Reshape (nonzero, no_axes)
   Y = Gather <axis: int = 0> (flat, places)
"""


def packed_attention_function(opset: int) -> onnx.FunctionProto:
    """Return the operator's function, for a model of this opset (18 or later).

    It takes Q, K and V [tokens, heads, head size], the first image's tokens first, and gives Y of the same shape
    and type: softmax(Q · Kᵀ) · V within each image, without a scale. `query_lengths` and `kv_lengths` [images + 1]
    int32 are the numbers of tokens before each image, and of all. There is no `attn_mask`.

    The operator is that of onnx-tensorrt's docs/TRT_custom_ops.md, in its packed forms (`FORMS`) alone.
    """
    signature = f"{TRT_ATTENTION} (Q, K, V, attn_mask, query_lengths, kv_lengths) => (Y)"
    grids = "".join(
        (
            _slots("q", "query_lengths"),
            _slots("kv", "kv_lengths"),
            _grid("q"),
            _grid("k", "kv"),
            _grid("v", "kv"),
        )
    )
    return parser.parse_function(
        f'<opset_import: ["": {opset}], domain: "{TRT}"> {signature} {{ {CONSTANTS} {grids} {ATTENTION} }}'
    )


def _slots(name: str, lengths: str) -> str:
    """Write the rows `name`_slots [images, longest] that fill a grid, an image's last token as its padding."""
    return f"""
   {name}_before = Slice ({lengths}, first, no_axes)
   {name}_start = Unsqueeze ({name}_before, second)
   {name}_until = Slice ({lengths}, second, end)
   {name}_stop = Unsqueeze ({name}_until, second)
   {name}_own = Sub ({name}_stop, {name}_start)
   {name}_longest = ReduceMax <keepdims: int = 0> ({name}_own)
   {name}_columns = Range (zero, {name}_longest, one)
   {name}_live = Less ({name}_columns, {name}_own)
   {name}_last = Sub ({name}_own, one)
   {name}_within = Min ({name}_columns, {name}_last)
   {name}_slots = Add ({name}_start, {name}_within)
"""


def _grid(name: str, slots: str = "") -> str:
    return f"   {name}_grid = Gather <axis: int = 0> ({name.upper()}, {slots or name}_slots)\n"
