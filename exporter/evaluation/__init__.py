"""Measure parity, accuracy and speed of models, and write the report."""
