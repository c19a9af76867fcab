"""Compare a shipped model with its PyTorch reference: arithmetic and decisions are checked separately."""
