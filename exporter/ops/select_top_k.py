"""SelectTopK as an ONNX local function: STAR's top-k and the rows of tokens that follow from it, in one node.

A TensorRT plugin of that name replaces the body, see plugins/tensorrt. Any other runtime runs it.
"""

import onnx
from onnx import parser

from exporter.ops.cdf_retain.onnx_function import DOMAIN

__all__ = ["SELECT_TOP_K", "select_top_k_function"]

SELECT_TOP_K = "SelectTopK"

# The selection as `expand_selection` writes it: ties go to the lower position, and positions ascend.
BODY = """
   no_axes = Constant <value_ints: ints = [-1]> ()
   zero = Constant <value_int: int = 0> ()
   one = Constant <value_int: int = 1> ()
   k = Constant <value_int: int = @k> ()
   prefix = Constant <value_int: int = @num_prefix_tokens> ()

   size = Reshape (k, no_axes)
   best, order = TopK <axis: int = 1, largest: int = 1, sorted: int = 1> (score, size)
   keep, rank = TopK <axis: int = 1, largest: int = 0, sorted: int = 1> (order, size)

   batch = Shape <start: int = 0, end: int = 1> (score)
   width = Reshape (prefix, no_axes)
   shape = Concat <axis: int = 0> (batch, width)
   numbers = Range (zero, prefix, one)
   prefixes = Expand (numbers, shape)
   shifted = Add (keep, prefix)
   joined = Concat <axis: int = 1> (prefixes, shifted)
   rows = Unsqueeze (joined, no_axes)
"""


def select_top_k_function(opset: int) -> onnx.FunctionProto:
    """Return the operator's function, for a model of this opset (17 or later).

    It takes score [B, N] float32 and gives keep [B, k] int64, the k patches of the largest scores, ascending, and
    rows [B, num_prefix_tokens + k, 1] int64, the prefix tokens and these patches as rows of tokens.
    """
    signature = "SelectTopK <k, num_prefix_tokens> (score) => (keep, rows)"
    return parser.parse_function(
        f'<opset_import: ["": {opset}], domain: "{DOMAIN}"> {signature} {{ {BODY} }}'
    )
