"""Run models on ONNX Runtime, and build the library of our operators for it."""
