"""Text as a terminal may have it: a name or a message from elsewhere moves no cursor and changes no colour."""

LONGEST = 1000  # characters of a message


def shown(text: str) -> str:
    r"""The text with what cannot be printed in Python's words: an escape character is `\x1b`, a new line `\n`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def message(text: str) -> str:
    """The text in one line, and not too long: its middle gives way."""
    line = " ".join(text.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    return shown(line)
