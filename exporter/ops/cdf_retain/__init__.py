"""CdfRetain, the operator behind a-STAR: the reference in NumPy, and its forms in PyTorch and ONNX."""
