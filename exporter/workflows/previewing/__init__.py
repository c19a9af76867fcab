"""Say what a verb would do, without doing it: its steps, multiply-adds and files, and about how long."""
