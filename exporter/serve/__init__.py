"""Export folders, and what is done with them on the deployment machine, without PyTorch.

In: a folder that `compile` wrote. Out: a check, speeds, engines, or a folder for another loader. First read
`export_folder` and `check`.
"""
