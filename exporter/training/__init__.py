"""Trains an image classifier from a folder of images: `python -m exporter.training --help`."""
