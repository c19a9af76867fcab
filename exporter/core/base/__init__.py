"""What every stage stands on: errors, files and their formats, records, targets and the types of settings.

In: nothing of ours. Out: frozen records that the stages hand on. First read `records` and `targets`.
"""
