"""Run `star-export` as `python -m exporter`."""

import sys

from exporter.cli.main import main

sys.exit(main())
