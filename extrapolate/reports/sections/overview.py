"""The losses at one glance, for the HTML page: the best of each length, what is not surely worse, in several units."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from extrapolate.reports.material import Material
from extrapolate.reports.page import Block, Cell, Grid, OnlyHtml, Switch, Text
from extrapolate.reports.sections.base import Part, Section, sections
from extrapolate.results.verdicts import EQUIVALENT, LEAST, UNDECIDED
from extrapolate.statistics import comparison
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.comparison import CONTROL, Comparison

Found = Mapping[tuple[str, float], Comparison]  # by model and factor

BEST = """\
The best of each length is in bold. ≈ marks a loss that is equivalent to the best, or undecided: it is not shown to be
worse by {:g} nats or more, by the 95 % interval of the difference and after Holm's correction for the comparisons in
this table. {} A click on a column's name sorts by it."""
LOSSY = """\
Bits per byte is n/a: the tokenizer of this corpus is lossy. Decoding its tokens does not give the text back, so they do
not stand for its bytes."""
CHOSEN = " These same data chose the best among all models. That makes differences to it look a little too large."


@sections.register("overview")
class Overview(Section):
    """The losses of every protocol in one table, in several units, with intervals and the best marked."""

    chapter = "The answer"
    place = 5

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return ["losses"] if material.rows else []

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        views = {protocol: _protocol(material, protocol, rows) for protocol, rows in material.rows.items()}
        if len(views) == 1:
            return Part(next(iter(views.values())))
        return Part([Switch("protocol", "protocol", views)])


def _protocol(material: Material, protocol: str, rows: pd.DataFrame) -> list[Block]:
    sums = [setting for setting in material.sums if setting.protocol == protocol]
    best = comparison.corrected(list(comparison.with_best(sums)), "holm")
    to_best = {(one.model, one.factor): one for one in best}
    to_control = {
        (one.model, one.factor): one for one in material.compared if one.protocol == protocol and one.other == CONTROL
    }
    order = material.models(protocol)
    cells = _Cells(rows, to_best, to_control)
    units: dict[str, Callable[[str, float], Cell]] = {"loss": cells.loss, "perplexity": cells.perplexity}
    if cells.has_bits:
        units["bits per byte"] = cells.bits
    units["difference to the control"] = cells.difference
    columns = ["Model", *(f"{factor:g}x" for factor in cells.factors), "seeds"]
    views: dict[str, Sequence[Block]] = {
        unit: [
            Grid(
                columns,
                [
                    [Cell(model), *(cell(model, factor) for factor in cells.factors), Cell(*cells.seeds(model))]
                    for model in order
                ],
                f"{protocol}, {_UNITS[unit]}, by evaluation length / training length",
            )
        ]
        for unit, cell in units.items()
    }
    if rows["n_bytes"].isna().all():
        views["bits per byte"] = [Text(LOSSY)]
    said = comparison.resampled(best)
    if any(one.one_run for one in best):
        said += " Where a model has one seed, marks are about this run."
    return [Switch(f"unit-{protocol}", "shown as", views), OnlyHtml(Text(BEST.format(LEAST, said) + CHOSEN))]


_UNITS = {
    "loss": "loss in nats per token",
    "perplexity": "perplexity",
    "bits per byte": "bits per byte of text",
    "difference to the control": "loss less the control's, nats per token",
}


NOTHING = "n/a"


class _Cells:
    """The cells of one protocol's tables."""

    def __init__(self, rows: pd.DataFrame, to_best: Found, to_control: Found) -> None:
        self.factors = sorted(set(rows["factor"]))
        self._to_best, self._to_control = to_best, to_control
        grouped = rows.groupby(["model", "factor"])
        self._losses = grouped["loss"].agg(strict_mean).to_dict()
        self._bits = grouped["bits_per_byte"].agg(strict_mean).to_dict()
        self._by_seed = rows.sort_values("seed").groupby(["model", "factor"])["loss"].agg(list).to_dict()
        self._counts = rows.groupby("model")["seed"].nunique(dropna=False).to_dict()
        least = rows.groupby(["factor", "model"])["loss"].agg(strict_mean).groupby("factor").min()
        self._best = least.to_dict()
        self.has_bits = any(math.isfinite(bits) for bits in self._bits.values())

    def seeds(self, model: str) -> tuple[str, float]:
        count = self._counts[model]
        return str(count), float(count)

    def loss(self, model: str, factor: float) -> Cell:
        found = self._cell(model, factor, self._losses.get((model, factor), math.nan), "{:.3f}")
        return found if found.text == NOTHING else replace(found, note=self._note(model, factor))

    def perplexity(self, model: str, factor: float) -> Cell:
        loss = self._losses.get((model, factor), math.nan)
        return self._cell(model, factor, math.exp(loss) if loss < 700 else loss, "{:.2f}")

    def bits(self, model: str, factor: float) -> Cell:
        return self._cell(model, factor, self._bits.get((model, factor), math.nan), "{:.3f}")

    def difference(self, model: str, factor: float) -> Cell:
        """With a mark where it is sure."""
        one = self._to_control.get((model, factor))
        if one is None or one.difference is None:
            return Cell(NOTHING)
        return Cell(f"{one.difference.mean:+.3f}", one.difference.mean, self._note(model, factor))

    def _cell(self, model: str, factor: float, value: float, form: str) -> Cell:
        if math.isnan(value):
            return Cell(NOTHING)
        kind = ""
        if self._losses[model, factor] == self._best[factor]:
            kind = "best"
        elif (one := self._to_best.get((model, factor))) is not None and one.word in (EQUIVALENT, UNDECIDED):
            kind = "near"
        return Cell(form.format(value), value if math.isfinite(value) else None, kind=kind)

    def _note(self, model: str, factor: float) -> str:
        """What the reader can ask for: seeds, and both differences with their intervals. All are losses, in nats."""
        lines = []
        each = self._by_seed[model, factor]
        if len(each) > 1:
            lines.append("by seed: " + ", ".join(f"{loss:.3f}" for loss in each))
        else:
            lines.append("1 seed")
        for name, found in (("the control", self._to_control), ("the best", self._to_best)):
            one = found.get((model, factor))
            if one is not None and one.difference is not None:
                lines.append(f"to {name}: {one.difference.text()}")
        return "\n".join(lines)
