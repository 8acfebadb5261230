"""Errors that the user can fix, and the wording of all errors."""

import contextlib
from collections.abc import Iterator


class UserError(ValueError):
    """An error in the input. The message says what is wrong and what to do about it.

    field: the setting that it is about, if it is known, by which a study shows the line of its file. Any other
    ValueError is a fault of this program or of a library.
    """

    field: str | None = None


@contextlib.contextmanager
def about(field: str) -> Iterator[None]:
    """Says of UserErrors that they are about a setting, unless they know better."""
    try:
        yield
    except UserError as error:
        error.field = error.field or field
        raise


def reason_of(error: Exception) -> str:
    """Why one of several tasks failed, in words, while the others continue."""
    if isinstance(error, MemoryError):
        return "there was not enough memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    if isinstance(error, UserError | RuntimeError | OSError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
