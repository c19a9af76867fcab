"""Whole jobs: a module or a folder for each verb, and the steps that they share.

Only these modules base decisions on measurements.
"""
