"""Accuracy, agreement, speed and loss of models.

In: runners, images and labels. Out: records of numbers with their intervals. First read `accuracy` and
`benchmark`.
"""
