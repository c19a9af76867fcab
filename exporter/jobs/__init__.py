"""Whole jobs: a module for each, and the records that they share.

In: a `Recipe`. Out: an export folder, a checkpoint or numbers. First read `recipe` and `compile`.
"""
