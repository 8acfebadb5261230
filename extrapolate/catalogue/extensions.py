"""Extensions, as `extrapolate extensions` lists them, and docs/extensions.md."""

from extrapolate.catalogue.encodings import DIMS
from extrapolate.catalogue.entries import Entry, entry_of, in_words, section
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
        "model. L is the training length, N the evaluation length; i is a query's index, j a key's, r = i - j; w_m are",
        "the M frequencies of a rotary encoding, fastest first. A factor that is not given is computed for each",
        "evaluation length. For a run that was tuned at another length, L is that length, except in its own extension.",
        "",
        "Extensions that change different things can be joined, as in `yarn:factor=8 + log-n`; scales multiply.",
        "",
        "| changes | extensions | in these encodings |",
        "|---|---|---|",
    ]
    for group in dict.fromkeys(entry.group for entry in entries):
        members = [entry for entry in entries if entry.group == group]
        names = ", ".join(f"[`{entry.name}`](#{entry.name})" for entry in members)
        applies = members[0].applies
        everywhere = set(applies) == set(encodings.names())
        lines.append(f"| {group} | {names} | {'all' if everywhere else in_words(applies)} |")
    lines += [
        "",
        "With several runs, each is evaluated with the extensions that apply to it, and the others are listed with the",
        "reason. An extension that applies to none of the runs is refused. `log-n` does not apply to a model trained",
        "with `--ssmax`. If position enters before W_q and W_k (`expe`, `sinusoidal`, `learned`) or is made from",
        "content (`cope`, `fox`, `wall`), no pair of tokens can be presented at another distance.",
    ]
    for entry in entries:
        lines += section(entry, f"{entry.display} · changes {entry.group} · {entry.source}")
    return "\n".join(line for at, line in enumerate(lines) if line or lines[at - 1]).rstrip() + "\n"
