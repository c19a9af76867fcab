"""Compare a lowered model with its PyTorch reference: arithmetic and decisions are checked separately.

In: two runners and images. Out: a `ParityReport`. First read `reference` and `comparison`; each runtime has a
runner.
"""
