"""The export folder, and what is done with it where it serves: engines, checks, measurements, Triton."""
