"""Charts on the HTML page: the pictures that `plots` draws, as SVG in the page's colours, with tooltips."""

import io
import re
from dataclasses import dataclass, replace
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from extrapolate.reports import plots
from extrapolate.reports.chart import Chart, Heat, Series
from extrapolate.reports.escaping import markdown, one_line, short
from extrapolate.reports.fonts import GLYPH, collected
from extrapolate.reports.page import Block, Switch

LARGEST = 1.25  # times the size in a file
WIDE = 3.2  # inches of a single panel, so that its letters are large enough on the page
ABREAST = 2  # panels side by side; if there are more, the page shows one at a time
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_DIGITS = re.compile(r"(\.\d)\d+")


@dataclass(frozen=True)
class Plot(Block):
    """A chart: a picture in Markdown, and part of the HTML page."""

    chart: Chart

    def markdown(self) -> str:
        picture = f"![{markdown(self.chart.text)}]({self.chart.file})"
        return f"{picture}\n\n{markdown(self.chart.caption)}" if self.chart.caption else picture

    def html(self) -> Markup:
        panels = self.chart.panels
        if not isinstance(panels, Heat) and len(panels) > ABREAST:
            views = {
                one.title: [Plot(replace(self.chart, panels=[one], file=f"{at}-{self.chart.file}"))]
                for at, one in enumerate(panels)
            }
            return Switch(self.chart.file, f"{self.chart.text}:", views, len(views) - 1).html()
        return Markup(
            '<figure class="chart"><div class="plot" role="img" aria-label="{}" tabindex="0">{}</div>'
            "<figcaption>{}</figcaption></figure>"
        ).format(self.chart.text, drawn(self.chart), one_line(self.chart.caption or self.chart.text))


def drawn(chart: Chart) -> Markup:
    """The picture as an SVG element. Black is the page's ink; lines say their name, and their points what they are."""
    written = io.BytesIO()
    own = {"svg.fonttype": "none", "svg.hashsalt": chart.file}  # ids are unique in the page
    with plots.own_settings(own), collected(GLYPH):  # browsers find fonts with all letters themselves
        plots.figure(chart, WIDE).savefig(written, format="svg", transparent=True, metadata={"Date": None})
    for prefix, name in (("", SVG), ("xlink", XLINK)):
        ElementTree.register_namespace(prefix, name)
    root = ElementTree.fromstring(written.getvalue())
    for part in [one for one in root if one.tag == f"{{{SVG}}}metadata" or one.find(f"{{{SVG}}}style") is not None]:
        root.remove(part)  # a style in it would be the page's
    if not isinstance(chart.panels, Heat):
        groups = {one.get("id"): one for one in root.iter(f"{{{SVG}}}g")}
        for at, one in enumerate(one for panel in chart.panels for one in panel.series):
            if (group := groups.get(plots.gid(at))) is not None:
                _explain(group, one)
    for element in root.iter():
        for name in {"d", "x", "y"}.intersection(element.keys()):  # a tenth of a point is less than anyone sees
            element.set(name, _DIGITS.sub(r"\1", element.attrib[name]))
    width = float(root.attrib.pop("width").removesuffix("pt"))
    del root.attrib["height"]
    root.set("style", f"max-width: {LARGEST * width:.0f}pt")
    made = ElementTree.tostring(root, encoding="unicode")
    for colour in ("#000000", plots.DARK_GREY.lower()):
        made = made.replace(colour, "currentColor")
    return Markup(made)


def _explain(group: ElementTree.Element, one: Series) -> None:
    """Gives a line its name as a tooltip, and each of its points its value."""
    group.set("class", "series")
    del group.attrib["id"]  # which other charts of the page have too
    name = short(one.name)
    _entitle(group, name)
    marks = list(group.iter(f"{{{SVG}}}use"))
    points = zip(list(one.x), list(one.y), one.texts or [""] * len(list(one.x)), strict=True)
    there = [(x, y, text) for x, y, text in points if np.isfinite(y)]
    if len(marks) == len(there):  # a long line has marks on some of its points, and none outside of the picture
        for mark, (x, y, text) in zip(marks, there, strict=True):
            _entitle(mark, f"{name}, {x:g}: {y:.4g}{text}")


def _entitle(element: ElementTree.Element, text: str) -> None:
    title = ElementTree.Element(f"{{{SVG}}}title")
    title.text = text
    element.insert(0, title)
