"""A ViT behind one protocol, whatever family it is of and wherever its weights lie."""
