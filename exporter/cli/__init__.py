"""The command line: one module per verb. Results go to stdout, everything else to stderr."""
