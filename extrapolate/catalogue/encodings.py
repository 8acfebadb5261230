"""Encodings, as `extrapolate encodings` lists them, and docs/encodings.md."""

from extrapolate.catalogue.entries import Entry, contents, entry_of, in_words, section
from extrapolate.encodings.base import FAMILIES, Dims, encodings
from extrapolate.extensions.base import extensions
from extrapolate.model.layers import find, layer_encodings

# What applies to what does not depend on sizes; these are the tiny preset's.
DIMS = Dims(width=128, heads=4, head_dim=32, seq_len=64, layers=4)


def encoding_entry(name: str) -> Entry:
    """The entry of an encoding, registered or `path/to/file.py:Class`. Raises UserError if there is none."""
    cls = find(name)
    encoding = layer_encodings(name, {}, DIMS)[0]
    applies = tuple(n for n in extensions.names() if extensions[n].needs in encoding.accepts)
    return entry_of(name, cls, cls.family, encoding.caption, applies)


def encoding_entries() -> list[Entry]:
    """Every encoding, family by family."""
    return sorted(map(encoding_entry, encodings.names()), key=lambda e: (FAMILIES.index(e.group), e.name))


def encodings_page() -> str:
    """docs/encodings.md."""
    entries = encoding_entries()
    lines = [
        "# Encodings",
        "",
        "Made from the code by `extrapolate encodings --markdown`. L is the training length, D the width, H the number",
        "of heads, K the size of a head; i is the position of a query, j that of a key. Unless stated otherwise,",
        "scores are scaled by 1/sqrt(K), biases are added after scaling, and indices start at 0. A default of `auto`",
        "follows from the model or L, as the text above it says; `theta` is the base of the wavelengths.",
        "",
        *contents(entries, "family", "encodings"),
        "",
        "The pictures show untrained models of width 128 with 4 heads, L = 128 and seed 0. To draw one, run",
        "`extrapolate encodings rope --plot rope.png`. Its four parts are",
        "",
        "- top left, what the encoding makes of each position, in every dimension, with a title that names where this",
        "  enters the model;",
        "- top right, some of these dimensions as curves;",
        "- bottom left, the change in every dimension from position 0 to 50, from 50 to 99, and from 0 to 99;",
        "- bottom right, how the last token of a window scores each token, by distance. All queries and keys are the",
        "  same vector, so only position makes a difference. Thin lines are heads, if they differ, and the thick line",
        "  is their mean.",
    ]
    for entry in entries:
        lines += section(entry, f"{entry.display} · {entry.group} · {entry.source}")
        lines += [
            f"Extensions that apply: {in_words(entry.applies)}.",
            "",
            f"![What {entry.display} makes of positions](encodings/{entry.name}.png)",
        ]
    return "\n".join(lines) + "\n"
