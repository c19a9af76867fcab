"""The search for a model: the fastest within a loss, or the best of a speed.

In: a `Recipe` and `TuneSettings`. Out: an export folder of the chosen model. First read `tune` and `ways`.
"""
