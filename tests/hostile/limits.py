"""Limits on how long a command takes: of the processor, which a busy machine does not lengthen, and in all."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MOST_CPU_S", "MOST_S", "Hang", "limited"]

MOST_CPU_S = 10
# One that waits, for a pipe or the network, takes no time of the processor.
MOST_S = 60


class Hang(BaseException):
    """Raised in the middle of a command that takes too long; no handler of errors catches it."""


@contextmanager
def limited(most_cpu_s: float = MOST_CPU_S, most_s: float = MOST_S) -> Iterator[None]:
    """Raise Hang in the body after so many seconds of the processor, or in all."""

    def fail(number: int, _: object) -> None:
        most = f"{most_s:g} s" if number == signal.SIGALRM else f"{most_cpu_s:g} s of the processor"
        raise Hang(f"no answer in {most}")

    timers = {signal.SIGALRM: (signal.ITIMER_REAL, most_s), signal.SIGPROF: (signal.ITIMER_PROF, most_cpu_s)}
    before = {number: signal.signal(number, fail) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
