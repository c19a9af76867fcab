"""Export a pruned ViT to ONNX, then rewrite the graph pass by pass for one target."""
