"""Train an image classifier on a folder of images: `python -m exporter.training --help`."""
