"""Train or refit a model.

In: a model, pruned or not, and labelled images with `FinetuneSettings`; or a pruned one and images without labels.
Out: weights, with what prunes them in their metadata. First read `finetune` and `refit`.
"""
