"""Extensions, as `extrapolate extensions` lists them, and docs/extensions.md."""

from extrapolate.catalogue.encodings import DIMS, encoding_entries
from extrapolate.catalogue.entries import Entry, contents, entry_of, in_words, section
from extrapolate.encodings.base import encodings
from extrapolate.extensions.base import extensions
from extrapolate.model.layers import layer_encodings


def extension_entry(name: str) -> Entry:
    """The entry of an extension. Raises UserError if there is none."""
    cls = extensions[name]
    applies = tuple(n for n in encodings.names() if cls.needs in layer_encodings(n, {}, DIMS)[0].accepts)
    return entry_of(name, cls, cls.needs, "", applies)


def extension_entries() -> list[Entry]:
    """Every extension, by what it changes."""
    return sorted(map(extension_entry, extensions.names()), key=lambda e: (e.group, e.name))


def extensions_page() -> str:
    """docs/extensions.md."""
    entries = extension_entries()
    lines = [
        "# Extensions",
        "",
        "Made from the code by `extrapolate extensions --markdown`. An extension is applied at inference to a trained",
        "model. L is the training length, N the evaluated one; i is a query's index, j a key's, r = i - j; w_m are a",
        "rotary encoding's M frequencies, fastest first. Extensions join where they change different things, as in",
        "`yarn:factor=8 + log-n`; scales multiply. A factor left out is computed afresh for each length. For a tuned",
        "run L is the length that it was tuned at, but for the extension that belongs to it: there it is the first.",
        "",
        *contents(entries, "changes", "extensions"),
        "",
        "## What applies to what",
        "",
        "| | " + " | ".join(f"`{entry.name}`" for entry in entries) + " |",
        "|---|" + ":-:|" * len(entries),
    ]
    for encoding in encoding_entries():
        cells = ["✓" if entry.name in encoding.applies else "" for entry in entries]
        lines.append(f"| [`{encoding.name}`](encodings.md#{encoding.name}) | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Of several runs, each is evaluated with the extensions that apply to it, and the others are named with the",
        "reason. One that applies to none of them is refused. `log-n` does not apply to a model that was trained with",
        "`--ssmax`. If position enters before W_q and W_k (`expe`, `sinusoidal`, `learned`) or is made from content",
        "(`cope`, `fox`, `wall`), no pair of tokens can be presented at another distance.",
    ]
    for entry in entries:
        lines += section(entry, f"{entry.display} · changes {entry.group} · {entry.source}")
        lines.append(f"Applies to: {in_words(entry.applies)}.")
    return "\n".join(lines) + "\n"
