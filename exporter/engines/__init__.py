"""TensorRT: build engines of lowered models, describe, audit, run and time them.

In: lowered models for a TensorRT target. Out: engines with a manifest and an audit, or the script for
trtexec. First read `builder` and `trtexec`; `choice` picks the runtime of any model.
"""
