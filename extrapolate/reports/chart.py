"""Pictures that the HTML page draws itself, and that the reader can read off."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from extrapolate.reports.page import Picture


@dataclass(frozen=True)
class Chart(Picture):
    """A picture in Markdown, and a chart in the HTML page: traces and a layout in plotly's schema, as JSON has it.

    smoothing: the chart has a slider for the exponential moving average, and a switch between tokens and time.
    """

    traces: Sequence[Mapping[str, Any]] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    smoothing: bool = False

    def html(self) -> Markup:
        drawn = {"traces": self.traces, "layout": self.layout, "smoothing": self.smoothing}
        # Within a script nothing but its end is read, which no JSON needs to hold as it is.
        data = Markup(json.dumps(drawn, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))
        return Markup(
            '<figure class="chart"><div class="plot" role="img" aria-label="{}"></div>'
            '<script type="application/json">{}</script><figcaption>{}</figcaption></figure>'
        ).format(self.text, data, self.text)
