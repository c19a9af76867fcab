"""CdfRetain, the operator of a-STAR: the reference in NumPy, and its forms in PyTorch and ONNX."""
