"""Ctrl-C and SIGTERM: told apart from what a user's own code raises, or collected until a step has ended."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Pressed(KeyboardInterrupt):
    """The user pressed Ctrl-C."""


@contextmanager
def told_apart() -> Iterator[None]:
    """Within it, Ctrl-C raises Pressed: any other KeyboardInterrupt was raised by code.

    Nothing changes outside of the main thread, or if Ctrl-C has another handler than Python's own.
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
    """Training was stopped from outside; what was done is saved."""


@contextlib.contextmanager
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
