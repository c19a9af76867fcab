"""Find the fastest model within a loss of accuracy, or the most accurate one within a latency."""
