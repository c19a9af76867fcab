"""Models of Hugging Face's library as timm's networks: from its folders, its hub, and its instances.

The library itself, transformers, reads configs, weights and processors, and its model is the reference of ours.
"""
