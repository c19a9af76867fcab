"""One interface to the ViTs of timm, torchvision and LV-ViT.

In: a network as its library builds it. Out: a `PrunableViT` with its blocks in parts, and its `ModelSpec`.
First read `protocol` and `timm_adapters`.
"""
