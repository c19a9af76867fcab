"""Image files as the batches that a model takes."""
