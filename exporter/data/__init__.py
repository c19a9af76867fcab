"""Image files as batches for a model.

In: a folder, an archive, an array or a loader. Out: an `ImageFolder`, and float32 or uint8 batches. First read
`images` and `pixels`.
"""
