"""Remove attention layers and activations of a ViT, merge the linears left behind, and predict what it costs."""
