"""A pruned ViT as ONNX: exported whole, then rewritten pass by pass for one target."""
