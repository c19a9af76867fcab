"""Export folders: written, read and verified, and what is done with them on the deployment machine."""
