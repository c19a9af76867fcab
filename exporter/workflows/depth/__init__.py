"""Depth pruning as jobs: score, collect, choose and apply."""
