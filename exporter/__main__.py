"""`python -m exporter` is `star-export`."""

import sys

from exporter.cli.main import main

sys.exit(main())
