"""The whole way in one call, and what is done with an export folder; only here a measurement changes a choice."""
