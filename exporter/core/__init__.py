"""The compiler: a ViT and an amount go in, a pruned ONNX model that agrees with PyTorch comes out.

Nothing in here imports a room around it. The order is that of the way: `base` (errors, files, records,
targets), `vit` (one interface to every family), `schedule` (how many patches each layer keeps), `prune` (the
PyTorch reference), `lower` (ONNX for one target), `verify` (the comparison of both).
"""
