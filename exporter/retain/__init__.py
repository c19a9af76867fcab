"""CdfRetain, the operator behind a-STAR: its judge and its faces in PyTorch and ONNX, side by side."""
