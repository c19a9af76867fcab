"""The operators that a pruned ViT adds to a ViT, each whole for an exporter to see."""
