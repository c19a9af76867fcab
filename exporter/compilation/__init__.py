"""From a trained ViT to a proven export folder, and back: only here does a measurement change a schedule."""
