"""A report as one HTML page that needs no other file: it opens offline, and asks no host for anything."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from extrapolate.reports.page import Block, Heading, within
from extrapolate.reports.traces import Plot

_ASSETS = resources.files("extrapolate.reports") / "assets"


def html(blocks: Sequence[Block], title: str) -> str:
    """The page in HTML.

    Its policy lets the browser run the page's own scripts alone, by their hashes, and load nothing: a name that were
    taken for markup would still do nothing.
    """
    scripts = [_asset("page.js")]
    if any(isinstance(block, Plot) for block in within(blocks)):
        scripts = [_plotly(), _asset("charts.js"), *scripts]
    environment = Environment(
        loader=PackageLoader("extrapolate.reports", "assets"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.j2").render(
        title=title,
        blocks=[block.html() for block in blocks],
        chapters=[block for block in blocks if isinstance(block, Heading) and block.level == 1],
        style=Markup(_asset("page.css")),
        scripts=[Markup(script) for script in scripts],
        hashes=[base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts],
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _plotly() -> str:
    """Plotly for the browser, from the Python package."""
    return (resources.files("plotly") / "package_data/plotly.min.js").read_text(encoding="utf-8")
