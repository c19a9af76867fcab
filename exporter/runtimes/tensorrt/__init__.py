"""TensorRT engines: built from an export folder, described by a manifest, audited, and run by trtexec."""
