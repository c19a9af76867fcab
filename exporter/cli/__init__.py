"""The command line: one module per verb. Results go to stdout, everything else to stderr.

In: arguments. Out: an exit code. First read `main` and `compile`.
"""
