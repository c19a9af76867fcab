"""What models do, measured: parity, accuracy, speed, and the report of all three."""
