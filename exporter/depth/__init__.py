"""Remove attention layers and activations of a ViT (BoundaryDPT), and merge the linears left behind.

In: a `PrunableViT` and how much to remove. Out: a smaller one, which every other room takes as any ViT. First
read `choose` and `surgery`.
"""
