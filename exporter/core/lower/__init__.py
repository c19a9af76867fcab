"""Export a pruned ViT to ONNX, then rewrite the graph pass by pass for one target.

In: a `PrunedViT` and a `Target`. Out: an `onnx.ModelProto` with its schedule in the metadata. First read
`pipeline` and `pass_table`, which lists the passes.
"""
