"""Run `star-export`, also as `python -m exporter`; Ctrl-C is answered during the imports too."""

import gc
import sys


def main() -> int:
    """Run the verb of the command line and return the exit code.

    The million objects of torch and of an export stay to the end: it is waste to look for garbage among them often,
    and once more when the process ends. That took a third of a short command.
    """
    gc.set_threshold(100_000, 50, 50)
    try:
        from exporter.cli.main import main as run  # noqa: PLC0415  (it takes a moment, in which Ctrl-C may come)

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return 130
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
