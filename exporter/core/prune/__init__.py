"""The PyTorch reference of a pruned ViT.

In: a `PrunableViT` and a `Schedule`. Out: a `PrunedViT`, an `nn.Module`. First read `pruned_vit` and `tokens`;
the tensor operators are in `ops`.
"""
