"""The operators that pruning adds to a ViT; an exporter sees each as a single node.

In and out: tensors alone. First read `selection` and `merging`; `cdf_reference` defines CdfRetain in NumPy.
"""
