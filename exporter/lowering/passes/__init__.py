"""One graph pass a file; `exporter.lowering.pipeline` lists them."""
