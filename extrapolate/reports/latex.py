"""LaTeX tables that compile with every pdflatex: names can have any characters, and none of them is a command."""

import re
import unicodedata

import pandas as pd

from extrapolate.reports.escaping import one_line

LONGEST = 1500  # characters of a name or a caption: TeX measures them in one line, of at most 5.7 m
_ASCII = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # at the start of a row, the preceding \\ would take them as its arguments
}  # fmt: skip
_SYMBOLS = {
    "–": "--", "—": "---", "…": r"\ldots{}", "‘": "`", "’": "'", "“": "``", "”": "''", "§": r"\S{}",
    "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}",
    "ł": r"\l{}", "Ł": r"\L{}",
}  # fmt: skip
_MATH = {
    "−": "-", "×": r"\times", "·": r"\cdot", "÷": r"\div", "±": r"\pm", "≥": r"\geq", "≤": r"\leq", "≠": r"\neq",
    "≈": r"\approx", "∞": r"\infty", "√": r"\surd", "∈": r"\in", "∑": r"\sum", "∂": r"\partial", "→": r"\rightarrow",
    "←": r"\leftarrow", "↔": r"\leftrightarrow", "°": r"^\circ", "µ": r"\mu", "ς": r"\varsigma",
}  # fmt: skip
_GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi",
    "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega",
}  # fmt: skip
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`", "\N{COMBINING ACUTE ACCENT}": "'", "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~", "\N{COMBINING DIAERESIS}": '"', "\N{COMBINING RING ABOVE}": "r",
    "\N{COMBINING CEDILLA}": "c", "\N{COMBINING CARON}": "v", "\N{COMBINING MACRON}": "=", "\N{COMBINING BREVE}": "u",
    "\N{COMBINING DOT ABOVE}": ".", "\N{COMBINING DOUBLE ACUTE ACCENT}": "H",
}  # fmt: skip
_RAISED = {"<super>": "textsuperscript", "<sub>": "textsubscript"}
_GREEK_NAME = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (?:LAMDA|(\w+))")


def table(frame: pd.DataFrame, caption: str) -> str:
    """A floating table with the rules of the package booktabs. Names are in `Model`; losses have three decimals."""
    styler = frame.assign(Model=frame["Model"].map(escaped)).style.hide(axis="index").format(precision=3, na_rep="n/a")
    styler = styler.format(precision=2, na_rep="n/a", subset=[name for name in frame if name == "Training time"])
    return styler.to_latex(hrules=True, caption=escaped(caption), position_float="centering")


def escaped(text: str) -> str:
    """The text in ASCII, cut after LONGEST characters.

    Characters for which LaTeX's own fonts have no command become their code points: `U+4E2D`.
    """
    made: list[str] = []
    length = 0
    for character in one_line(text):
        shown = _character(character)
        length += len(shown) if shown.startswith("U+") else 1
        if length > LONGEST:
            return "".join(made) + r"\ldots{}"
        made.append(shown)
    return "".join(made)


def _character(character: str) -> str:
    if character.isascii():
        return _ASCII.get(character, character)
    if character in _SYMBOLS:
        return _SYMBOLS[character]
    if character in _MATH:
        return rf"\ensuremath{{{_MATH[character]}}}"
    if (greek := _greek(character)) is not None:
        return rf"\ensuremath{{\{greek}}}"
    kind, *parts = unicodedata.decomposition(character).split() or [""]
    if kind in _RAISED and len(parts) == 1 and parts[0].startswith("003"):  # a digit
        return rf"\{_RAISED[kind]}{{{chr(int(parts[0], 16))}}}"
    letter, *accents = list(unicodedata.normalize("NFD", character))
    if letter.isascii() and letter.isalpha() and len(accents) == 1 and accents[0] in _ACCENTS:
        return rf"\{_ACCENTS[accents[0]]}{{{letter}}}"
    return f"U+{ord(character):04X}"


def _greek(character: str) -> str | None:
    """The name of a Greek letter's command, without the backslash."""
    found = _GREEK_NAME.fullmatch(unicodedata.name(character, ""))
    if found is None:
        return None
    letter = (found[2] or "lambda").lower()
    command = letter.capitalize() if found[1] == "CAPITAL" else letter
    return command if command in _GREEK else None
