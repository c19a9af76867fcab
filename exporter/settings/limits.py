"""Types with limits, for settings and records; errors quote the description of a limit.

msgspec accepts infinity within a one-sided limit, and NaN without limits: every number of settings has two limits.
"""

import sys
from typing import Annotated, Literal

from msgspec import Meta

__all__ = [
    "LARGEST",
    "Batches",
    "Count",
    "Instances",
    "Microseconds",
    "Natural",
    "Number",
    "Points",
    "Positive",
    "ServedBatch",
    "Share",
    "Threads",
    "Weight",
]

# The largest integer that all libraries used here accept, and the largest finite number.
MOST = 2**31 - 1
LARGEST = sys.float_info.max

Positive = Annotated[int, Meta(ge=1, le=MOST, description=f"an integer from 1 to {MOST}")]
Natural = Annotated[int, Meta(ge=0, le=MOST, description=f"an integer from 0 to {MOST}")]
Batches = Annotated[tuple[Positive, ...], Meta(min_length=1)]
Count = Annotated[Positive | Literal["auto"], Meta(description=f"an integer from 1 to {MOST}, or auto")]
# More threads or processes than any machine serves would stop it.
Threads = Annotated[int, Meta(ge=0, le=1024, description="an integer from 0 to 1024")]
# A server keeps memory for its largest batch and each instance, and a request for as long as it waits.
ServedBatch = Annotated[int, Meta(ge=1, le=65_536, description="an integer from 1 to 65536")]
Instances = Annotated[int, Meta(ge=1, le=1024, description="an integer from 1 to 1024")]
Microseconds = Annotated[
    int, Meta(ge=0, le=60_000_000, description="an integer from 0 to 60000000, a minute")
]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST, description="a finite number")]
Points = Annotated[float, Meta(gt=0, lt=100, description="a number of percentage points in (0, 100)")]
Share = Annotated[float, Meta(gt=0, le=1, description="a number in (0, 1]")]
Weight = Annotated[float, Meta(ge=0, le=1, description="a number in [0, 1]")]
