"""The page of sources, synthetic text and probes, made from the code: `python -m extrapolate.catalogue.data`."""

from extrapolate.catalogue.entries import contents, entry_of, section
from extrapolate.data.probes.base import parse_probe, probes
from extrapolate.data.sources.base import form, sources
from extrapolate.data.sources.local.base import LocalFiles, kinds
from extrapolate.data.sources.synthetic import PREFIX
from extrapolate.data.synthetic.base import processes

SOURCE, PROCESS, PROBE = "source", "synthetic text", "probe"


def data_page() -> str:
    """docs/data.md."""
    named = [entry_of(name, sources[name], SOURCE) for name in sources.names()]
    paths = entry_of("path", LocalFiles, SOURCE)
    drawn = [entry_of(name, processes[name], PROCESS) for name in processes.names()]
    asked = [entry_of(name, probes[name], PROBE) for name in probes.names()]
    lines = [
        "# Sources, synthetic text and probes",
        "",
        "Made from the code by `python -m extrapolate.catalogue.data`. A source is where `extrapolate tokenize` takes",
        "documents from. [Synthetic text](synthetic.md) has a known optimum. A [probe](probes.md) asks for something",
        "that stands once in a window: `m` is its marker, `->` stands before an answer, and `symbols` is the number of",
        "tokens that an answer is drawn from. Columns and fields of text are named by `--text-field`.",
        "",
        *contents([*named, paths, *drawn, *asked], "kind", "what there is"),
    ]
    for entry in named:
        lines += section(entry, f"`{form(entry.name)}` · {SOURCE}")
    lines += section(paths, f"a file, a folder or a glob · {SOURCE}")
    lines += ["| file | documents |", "|---|---|"]
    lines += [f"| `{suffix}` | {entry_of(suffix, kinds[suffix], '').summary} |" for suffix in kinds.names()]
    for entry in drawn:
        lines += section(entry, f"`{PREFIX}{entry.name}` · {PROCESS}")
    for entry in asked:
        probe = parse_probe(entry.name)
        counted = "all answers of a window must be right" if probe.whole else "every answer counts by itself"
        lines += section(entry, f"{PROBE} · {counted} · chance {probe.chance:.3g} · {probe.source}")
    return "\n".join(line for at, line in enumerate(lines) if line or lines[at - 1]).rstrip() + "\n"


if __name__ == "__main__":
    print(data_page(), end="")
