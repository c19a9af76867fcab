"""Limits on how long a command takes: of the processor, which a busy machine does not lengthen, and in all."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

MOST_CPU_S = 10
# One that waits, for a pipe or the network, takes no time of the processor.
MOST_S = 60
TICKS = 20


class Hang(BaseException):
    """Raised in the middle of a command that takes too long; no handler of errors catches it."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise Hang in the body after so many seconds of the processor, or in all; pauses of the process do not count.

    Of the ticks that come in a pause, the process gets one.
    """
    left = TICKS

    def fail(*_: object) -> None:
        raise Hang(f"no answer in {MOST_CPU_S} s of the processor")

    def tick(*_: object) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise Hang(f"no answer in {MOST_S} s")

    timers = {signal.SIGALRM: signal.ITIMER_REAL, signal.SIGPROF: signal.ITIMER_PROF}
    before = {
        signal.SIGALRM: signal.signal(signal.SIGALRM, tick),
        signal.SIGPROF: signal.signal(signal.SIGPROF, fail),
    }
    signal.setitimer(signal.ITIMER_REAL, MOST_S / TICKS, MOST_S / TICKS)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        yield
    finally:
        for number, timer in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
