"""One way to run a model, whatever runtime it is in; each file here owns the import of its runtime."""
