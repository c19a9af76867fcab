"""The report of a compilation: a JSON record for programs, an HTML page to read."""
