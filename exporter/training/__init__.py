"""Train a model: its images and their augmentation, the loop, and the checkpoints of a run."""
