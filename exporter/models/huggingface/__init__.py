"""Models of Hugging Face's library as timm's networks: from its folders, its hub, and its instances.

`config.json` and the weights are read directly; the transformers library is not needed.
"""
