"""What a user, or an attacker, may give to a verb: one line and an exit code, never a stack trace."""
