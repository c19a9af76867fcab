"""A deployment compiler for pruned Vision Transformers."""

__version__ = "0.1.0"
