"""Ctrl-C and SIGTERM, held back until a step has ended."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(RuntimeError):  # noqa: N818 (not an error)
    """Training was stopped from outside; its progress is saved."""


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM, so that a step is never cut in half. A second Ctrl-C stops at once."""
    requests: list[int] = []

    def note(number: int, frame: object) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield requests
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
