"""The operators that pruning adds to a ViT; an exporter sees each as a single node."""
