"""Load a ViT of any supported family, from any source of weights, behind one interface."""
