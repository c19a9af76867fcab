"""Build TensorRT engines from an export folder, describe them in a manifest, audit, run and time them."""
