"""What is to be run on a machine with a GPU: one command each, on an export folder."""
