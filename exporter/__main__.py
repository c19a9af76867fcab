"""Run `star-export`, also as `python -m exporter`; Ctrl-C is answered during the imports too."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the verb of the command line and return the exit code."""
    try:
        from exporter.cli.main import main as run  # noqa: PLC0415  (it takes a moment, in which Ctrl-C may come)

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return 130


if __name__ == "__main__":
    sys.exit(main())
