"""Train a model, pruned or not.

In: a model, labelled images and `FinetuneSettings`. Out: weights, with what prunes them in their metadata.
First read `finetune` and `settings`.
"""
