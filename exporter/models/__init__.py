"""Load a ViT of any supported family, from any source of weights.

In: a `ModelRequest`, or a module of the user's. Out: a `PrunableViT`, compared with its network part by part.
First read `registry` and `border`.
"""
