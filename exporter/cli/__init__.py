"""The command line: one file a verb, file in, file out. Results go to stdout, everything else to stderr."""
