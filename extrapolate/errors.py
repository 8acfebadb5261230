"""Errors that the user can fix, and the wording of all errors."""


class UserError(ValueError):
    """An error in the input. The message says what is wrong and what to do about it.

    Any other ValueError is a fault of this program or of a library.
    """


def reason_of(error: Exception) -> str:
    """Why one of several tasks failed, in words, while the others continue."""
    if isinstance(error, MemoryError):
        return "there was not enough memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    if isinstance(error, UserError | RuntimeError | OSError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
