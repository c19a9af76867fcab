"""Measure on a few hundred images how much each patch matters to later layers, and how similar patches are.

In: a `PrunableViT` and images. Out: a `Calibration`: inter-layer scores (STAR, algorithm 2) and ACS (equation
5). First read `calibrate` and `importance`.
"""
