"""What a user did wrong, as opposed to what this program does wrong."""


class UserError(ValueError):
    """Something that was given is wrong. The message says what, and what to do.

    Any other ValueError is a fault of this program, or of a library below it.
    """
