"""Ctrl-C and SIGTERM: told apart from exceptions of a user's own code, or held back until a step has ended."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Pressed(KeyboardInterrupt):
    """The user pressed Ctrl-C."""


@contextmanager
def told_apart() -> Iterator[None]:
    """Makes Ctrl-C raise Pressed, so that any other KeyboardInterrupt was raised by code.

    Does nothing outside the main thread, or if Ctrl-C does not have Python's own handler.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def press(number: int, frame: FrameType | None) -> None:
        raise Pressed

    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
