"""Encodings, as `extrapolate encodings` lists them, and docs/encodings.md."""

from extrapolate.catalogue.entries import Entry, contents, entry_of, in_words, section
from extrapolate.encodings.base import FAMILIES, Dims, encodings, find
from extrapolate.extensions.base import extensions
from extrapolate.model.layers import layer_encodings

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
        "Made from the code by `extrapolate encodings --markdown`. L is the training length, D the width, H the heads,",
        "K the size of a head; i is a query's position, j a key's. Where nothing else is said, scores are scaled by",
        "1/sqrt(K), biases are added after that, and indices count from 0.",
        "",
        *contents(entries, "family", "encodings"),
    ]
    for entry in entries:
        lines += section(entry, f"{entry.display} · {entry.group} · {entry.source}")
        lines.append(
            f"Extensions that apply: {in_words(entry.applies)}. [What it looks like](encodings/{entry.name}.md)."
        )
    return "\n".join(lines) + "\n"
