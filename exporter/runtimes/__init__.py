"""One interface to all runtimes. Each file here is the only one that imports its runtime."""
