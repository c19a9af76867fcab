"""The report of a compilation.

In: what was measured. Out: `report.json` for programs, and HTML pages to read. First read `record` and `page`.
"""
