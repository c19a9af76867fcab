"""How many patches each layer keeps, and how many multiply-adds that saves.

In: a `Prune` and the shape of a model; for STAR also its ACS. Out: a `Schedule`. First read `plan` and `rates`.
"""
