"""The PyTorch reference of a pruned ViT."""
