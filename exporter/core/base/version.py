"""The version that is written into every file."""

VERSION = "0.2.0"
