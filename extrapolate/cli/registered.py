"""The names in the registries, for the commands' help: read from the files, because importing them takes seconds."""

import re
from functools import cache
from pathlib import Path

from extrapolate.names import MAX_TARGETS

PACKAGE = Path(__file__).parent.parent
# `@probes.register("needle")`, then the class with its constants. A parser would take a tenth of the start-up.
_CLASS = re.compile(r"^@\w+\.register\(\"([^\"]+)\"\)$(.*?)(?=^@\w+\.register|\Z)", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"^    (\w+)\b[^=\n(]*= (?:\"([^\"]*)\"|(\d[\d_]*))", re.MULTILINE)


@cache
def registered(folder: str) -> dict[str, dict[str, str]]:
    """The sorted names that the files in a folder of the package register, each with the constants of its class."""
    found = {
        name: {constant: text or number.replace("_", "") for constant, text, number in _CONSTANT.findall(body)}
        for file in (PACKAGE / folder).glob("*.py")
        for name, body in _CLASS.findall(file.read_text(encoding="utf-8"))
    }
    return dict(sorted(found.items()))


def sources() -> str:
    """`hf:NAME, stdlib, synthetic:NAME (echo, markov), a .txt file, a folder, or a glob`."""
    found = registered("data/sources")
    forms = {name: f"{name}:{values['argument']}" if "argument" in values else name for name, values in found.items()}
    forms["synthetic"] += f" ({', '.join(registered('data/synthetic'))})"
    *most, last = registered("data/sources/local")
    return ", ".join([*forms.values(), f"a {', '.join(most)} or {last} file", "a folder, or a glob"])


def most_targets() -> str:
    """The protocols' own limits: `windows 131072, the others 8192`."""
    own = {name: values.get("max_targets") for name, values in registered("evaluation/protocols").items()}
    return ", ".join([*(f"{name} {most}" for name, most in own.items() if most), f"the others {MAX_TARGETS}"])


def filled(text: str) -> str:
    """A line of help, with the registered names in place of `{probes}` and the like."""
    return re.sub(r"{(\w+)}", lambda found: _NAMED[found[1]](), text)


_NAMED = {
    "protocols": lambda: ", ".join(registered("evaluation/protocols")),
    "probes": lambda: ", ".join(registered("data/probes")),
    "measurements": lambda: ", ".join(registered("inspection/measurements")),
    "most_targets": most_targets,
}
