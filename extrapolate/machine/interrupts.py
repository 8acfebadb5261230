"""Ctrl-C, told apart from a KeyboardInterrupt that a user's own code raises."""

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

    Where Ctrl-C means something else than Python's own, or outside of the main thread, nothing changes.
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
