"""Depth pruning as jobs: choose and apply."""
