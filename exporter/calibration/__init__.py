"""Measure on a few hundred images how much each patch matters to later layers, and how similar patches are."""
