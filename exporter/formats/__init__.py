"""Read and write file formats: each module knows one, and no record in particular."""
