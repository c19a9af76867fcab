"""Compile a trained ViT into an export folder, and say beforehand what that would do."""
