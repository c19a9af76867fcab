"""What a compilation proved: a record for machines, a page for people."""
