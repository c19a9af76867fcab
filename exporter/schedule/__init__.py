"""Schedules: how many patches each layer keeps, and how many MACs that saves."""
