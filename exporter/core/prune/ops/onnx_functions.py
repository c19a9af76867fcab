"""CdfRetain as ONNX local functions: a runtime without a kernel for it runs the body.

The node itself, domain `star`, has the attributes by which TensorRT finds the plugin that replaces the body, see
plugins/tensorrt.
"""

import numpy as np
import onnx
from onnx import parser

from exporter.core.prune.ops.cdf_reference import EXACT_SUM
from exporter.core.schedule.counts import ROUNDING_GUARD

DOMAIN, CDF_RETAIN, CDF_RETAIN_PADDED = "star", "CdfRetain", "CdfRetainPadded"

PLUGIN_ATTRIBUTES = {"plugin_version": "1", "plugin_namespace": "star"}
# The most patches that the node can keep, for the plugin alone.
WIDEST = "widest"

# float32 numbers that the text must not round: the largest and the smallest normal one.
LARGEST, LEAST = (
    repr(float(x)) for x in (np.finfo(np.float32).max, np.finfo(np.float32).tiny)
)

TAKES = "(score, valid_count) =>"

USABLE = f"""
   zero = Constant <value_float: float = 0.0> ()
   one = Constant <value_float: float = 1.0> ()
   largest_float = Constant <value_float: float = {LARGEST}> ()
   least_float = Constant <value_float: float = {LEAST}> ()
   exact_sum = Constant <value_float: float = {float(EXACT_SUM)}> ()
   beyond = Constant <value_float: float = {float(2 * EXACT_SUM)}> ()
   guard = Constant <value_float: float = {float(ROUNDING_GUARD)!r}> ()
   first = Constant <value_ints: ints = [0]> ()
   second = Constant <value_ints: ints = [1]> ()
   start = Constant <value_int: int = 0> ()
   step = Constant <value_int: int = 1> ()

   patches = Shape <start: int = 1, end: int = 2> (score)
   stop = Squeeze (patches)
   numbers = Range (start, stop, step)
   slots = Cast <to: int = 1> (numbers)
   valid_float = Cast <to: int = 1> (valid_count)
   valid = Unsqueeze (valid_float, second)

   is_live = Less (slots, valid)
   is_positive = Greater (score, zero)
   counts = And (is_live, is_positive)
   finite = Min (score, largest_float)
   usable = Where (counts, finite, zero)
"""

UNITS = """
   unit_share = Div (exact_sum, valid)
   unit = Floor (unit_share)
   divisor = Max (top, least_float)
   share = Div ({scores}, divisor)
   scaled = Mul (share, unit)
   units = Round (scaled)
"""

# The patches in the order of their scores, the units of each, and of all before it.
BY_SORTING = f"""
   axis = Constant <value_int: int = 1> ()
   ranked, order = TopK <axis: int = 1> (usable, patches)
   top = Slice (ranked, first, second, second)
   {UNITS.format(scores="ranked")}
   reached = CumSum (units, axis)
   before = Sub (reached, units)
"""

# The same without a sort: each patch counts those of larger scores, and of equal ones before it. On a GPU these are
# two steps instead of four.
BY_COUNTING = f"""
   third = Constant <value_ints: ints = [2]> ()
   top = ReduceMax (usable, second)
   {UNITS.format(scores="usable")}
   own = Unsqueeze (usable, third)
   others = Unsqueeze (usable, second)
   own_slot = Unsqueeze (slots, second)
   other_slots = Unsqueeze (slots, first)
   larger = Greater (others, own)
   equal = Equal (others, own)
   earlier = Less (other_slots, own_slot)
   tied = And (equal, earlier)
   ahead = Or (larger, tied)
   other_units = Unsqueeze (units, second)
   units_ahead = Where (ahead, other_units, zero)
   before = ReduceSum <keepdims: int = 0> (units_ahead, third)
   ones_ahead = Cast <to: int = 1> (ahead)
   place = ReduceSum <keepdims: int = 0> (ones_ahead, third)
"""

# A mass of 1 lifts the threshold above every sum: 2²⁵ · ⌊mass⌋ + 1. Any other mass leaves the 1: a nonzero sum of
# units is never below it, and a row of zeros keeps all that rule 5 of the reference allows.
KEPT = """
   total = ReduceSum (units, second)
   whole = Floor (mass)
   lift = Mul (whole, beyond)
   floor = Add (lift, one)
   target = Mul (mass, total)
   threshold = Max (target, floor)
   within = Less (before, threshold)
   product = Mul (mass, valid)
   guarded = Sub (product, guard)
   most = Max (guarded, one)
   allowed = Less ({place}, most)
   kept = And (within, allowed)

   kept_number = Cast <to: int = 7> (kept)
   keep_count = ReduceSum <keepdims: int = 0> (kept_number, second)
   survivors = Where (kept, {patch}, patches)
"""
SORTED = BY_SORTING + KEPT.format(patch="order", place="slots")
COUNTED = BY_COUNTING + KEPT.format(patch="numbers", place="place")

ENDING = """
   no_axes = Constant <value_ints: ints = [-1]> ()
   width = ReduceMax <keepdims: int = 0> (keep_count)
   size = Reshape (width, no_axes)
   ascending, rank = TopK <axis: int = 1, largest: int = 0> (survivors, size)
   is_patch = Less (ascending, patches)
   keep_index = Where (is_patch, ascending, start)
"""

PADDED_ENDING = """
   size = Constant <value_ints: ints = @width> ()
   ascending, rank = TopK <axis: int = 1, largest: int = 0> (survivors, size)
   is_patch = Less (ascending, patches)
   keep_index = Where (is_patch, ascending, start)
"""


def cdf_retain_function(opset: int) -> onnx.FunctionProto:
    """Return the operator's function, for a model of this opset (17 or later)."""
    return _function(
        f"{CDF_RETAIN} <mass> {TAKES} (keep_index, keep_count, width)",
        SORTED + ENDING,
        opset,
    )


def cdf_retain_padded_function(
    opset: int, *, counting: bool = False
) -> onnx.FunctionProto:
    """Return the same with a width attribute, a list of one number, that no count exceeds.

    With `counting`, patches are counted instead of sorted: fewer steps on a GPU, but slower on a CPU.
    """
    signature = f"{CDF_RETAIN_PADDED} <mass, width> {TAKES} (keep_index, keep_count)"
    return _function(
        signature, (COUNTED if counting else SORTED) + PADDED_ENDING, opset
    )


def _function(signature: str, body: str, opset: int) -> onnx.FunctionProto:
    mass = "mass = Constant <value_float: float = @mass> ()"
    return parser.parse_function(
        f'<opset_import: ["": {opset}], domain: "{DOMAIN}"> {signature} {{ {mass} {USABLE} {body} }}'
    )
