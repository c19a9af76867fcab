"""Load image files as batches for a model."""
