"""The page of protocols, made from the code: `python -m extrapolate.catalogue.protocols`."""

from extrapolate.catalogue.entries import entry_of, section
from extrapolate.evaluation.protocols.base import protocols


def protocols_page() -> str:
    """docs/protocol-list.md."""
    lines = [
        "# Every protocol",
        "",
        "Made from the code by `python -m extrapolate.catalogue.protocols`. A protocol says which tokens are scored,",
        "and with which context. L is the training length, N the evaluated one. [protocols.md](protocols.md) explains",
        "how to read the pictures, and compares the protocols: what each one asks, its bias and its cost.",
        "",
        "Arguments are given as `--protocol sliding:stride=16`, or with the flags `--stride` and `--bos`.",
    ]
    for name in protocols.names():
        cls = protocols[name]
        shown = "the report shows the loss by position" if cls.positions else "no loss by position"
        heading = f"at most {cls.max_targets:,} targets, unless asked otherwise · {shown}"
        lines += section(entry_of(name, cls, "protocol"), heading)
        lines.append(f"![Windows of the protocol {name}](protocol-{name}.svg)")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(protocols_page(), end="")
