"""Evaluate one or two models, of files or of PyTorch, over images in one pass."""
