"""The losses at a glance: a chart and a table side by side, with the best of each length marked."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from extrapolate.evaluation.protocols.base import isolates
from extrapolate.reports.page import Beside, Block, Cell, Details, Grid, Switch, Text
from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.base import Part, Section, sections, suffix, with_conditions
from extrapolate.reports.sections.losses import about_seeds, chart
from extrapolate.reports.styles import GLYPHS
from extrapolate.reports.svg import Plot
from extrapolate.results.verdicts import LEAST, UNDECIDED
from extrapolate.statistics import comparison, ranks
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.comparison import CONTROL, Comparison
from extrapolate.statistics.intervals import FEWEST, FEWEST_SEEDS
from extrapolate.statistics.sums import ComparisonGroup

Found = Mapping[tuple[str, float], Comparison]  # by model and factor

BEST = """\
The lowest loss at each length is in bold. ? marks models that may have the lowest loss there: the 95 % interval of
their rank begins at 1, because no other model is shown to be lower by {least:g} nats or more. {clusters}"""
RANK = f"""\
Brackets hold the 95 % interval of a rank. It begins at 1 plus the number of models that are significantly better, and
ends at the number of models that are not significantly worse, the model itself included. Significant means that the
difference is at least {LEAST:g} nats and that its interval, which holds for all pairs with this model at once, excludes
zero. The intervals of ranks are not simultaneous: at most about one in 20 is wrong. With fewer than {FEWEST} documents
or stretches of them, or without a seed that all models share, a rank has none."""
FEW = f" With fewer than {FEWEST_SEEDS} seeds, ? and ranks are about these runs: other seeds may give another order."
HOLDS = f"""\
A model loses less than {LEAST:g} nats up to a length if the 95 % interval of its loss minus the control's ends below
{LEAST:g} nats at this length and at all shorter ones. The control is the plain model on the same targets, with its
context cut back to between L/2 and L tokens. ≥: at the next length it is undecided whether the loss is above the
control's."""
LOSSY = """\
Bits per byte is n/a: the tokenizer of this corpus is lossy. Decoding its tokens does not give the text back, so they do
not represent its bytes."""
CHOSEN = """\
In report.html, notes in the cells give differences from the lowest loss. They look a little too large, because the same
data determined which model is lowest."""


@sections.register("overview")
class Overview(Section):
    """The losses of every protocol in one table, in several units, with intervals and the best marked."""

    chapter = "The answer"
    place = 5

    @staticmethod
    def subjects(data: ReportData) -> Sequence[str]:
        return ["losses"] if data.rows else []

    @staticmethod
    def part(data: ReportData, subject: str) -> Part:
        views = {protocol: _protocol(data, protocol, data.rows[protocol]) for protocol in data.protocols()}
        if len(views) == 1:
            return Part(next(iter(views.values())))
        return Part([Switch("protocol", "protocol", views)])


def _protocol(data: ReportData, protocol: str, rows: pd.DataFrame) -> list[Block]:
    """The chart and the table of one protocol's losses, side by side."""
    sums = [setting for setting in data.sums if setting.protocol == protocol]
    best = list(comparison.with_best(sums))
    to_best = {(one.model, one.factor): one for one in best}
    against = data.against(protocol, CONTROL)
    cells = _Cells(rows, sums, to_best, {(one.model, one.factor): one for one in against})
    units: dict[str, Callable[[str, float], Cell]] = {"loss": cells.loss, "perplexity": cells.perplexity}
    if cells.has_bits:
        units["bits per byte"] = cells.bits
    units["difference to the control"] = cells.difference
    models = cells.in_order(data.models(protocol))
    more: dict[str, Callable[[str], Cell]] = {}
    if len(models) > 1:
        more[f"rank at {cells.factors[-1]:g}x"] = cells.rank
    if holds := isolates(protocol) and cells.factors[-1] > 1:
        more[f"loses < {LEAST:g} up to"] = cells.holds
    views: dict[str, Sequence[Block]] = {}
    names = {
        model: Cell(model, colour=style["color"], glyph=GLYPHS[style["marker"]]) for model, style in data.styles.items()
    }
    for unit, cell in units.items():
        lines = [
            [names[model], *(cell(model, factor) for factor in cells.factors), *(of(model) for of in more.values())]
            for model in models
        ]
        columns = ["Model", *(f"{factor:g}x" for factor in cells.factors), *more]
        views[unit] = [Grid(columns, lines, f"{protocol}, {_UNITS[unit]}{_seeds(rows)}{_key(lines)}")]
    if rows["n_bytes"].isna().all():
        views["bits per byte"] = [Text(LOSSY)]
    said = BEST.format(least=LEAST, clusters=comparison.resampled(best)) + FEW * (rows["seed"].nunique() < FEWEST_SEEDS)
    file = f"loss_by_ev{suffix(protocol)}.png"
    drawn = with_conditions(rows, chart(rows, data.styles, against, f"Protocol {protocol}", file))
    words = [Text(said), *([Text(RANK)] if len(models) > 1 else []), Text(CHOSEN), *([Text(HOLDS)] if holds else [])]
    how = Details([*words, *about_seeds(rows, data.styles)])
    return [Beside([Plot(drawn)], [Switch(f"unit-{protocol}", "show", views), how])]


def _seeds(rows: pd.DataFrame) -> str:
    """How many seeds the means are over, unless every model has one."""
    runs = rows.groupby("model")["run"].nunique()
    few, many = runs.min(), runs.max()
    if many == 1:
        return ""
    return f", mean of {many} seeds" if few == many else f", mean of {few} to {many} seeds"


def _key(lines: Sequence[Sequence[Cell]]) -> str:
    """What the marks mean that a table has."""
    kinds = {cell.kind for line in lines for cell in line}
    marks = {"best": "bold: lowest", UNDECIDED: "?: may be the lowest"}
    said = [text for kind, text in marks.items() if kind in kinds]
    if any(cell.text.startswith("≥") for line in lines for cell in line):
        said.append("≥: at least, undecided beyond")
    if any(cell.harm for line in lines for cell in line):
        said.append("red: above 1x")
    return f"; {', '.join(said)}" if said else ""


_UNITS = {
    "loss": "loss in nats per token",
    "perplexity": "perplexity",
    "bits per byte": "bits per byte of text",
    "difference to the control": "loss less the control's, nats per token",
}


NOTHING = "n/a"
_HARM = 0.5  # the strength of the red of a loss one nat above that at 1x


class _Cells:
    """The cells of one protocol's tables."""

    def __init__(self, rows: pd.DataFrame, sums: Sequence[ComparisonGroup], to_best: Found, to_control: Found) -> None:
        self.factors = sorted(set(rows["factor"]))
        self._to_best, self._to_control = to_best, to_control
        grouped = rows.groupby(["model", "factor"])
        self._losses = grouped["loss"].agg(strict_mean).to_dict()
        self._bits = grouped["bits_per_byte"].agg(strict_mean).to_dict()
        self._by_seed = rows.sort_values("seed").groupby(["model", "factor"])["loss"].agg(list).to_dict()
        least = rows.groupby(["factor", "model"])["loss"].agg(strict_mean).groupby("factor").min()
        self._best = least.to_dict()
        self._ranks = {
            (model, one.factor): rank
            for one in sums
            for model, rank in ranks.ranks_of(one, {m: self._loss(m, one.factor) for m in one.models}).items()
        }
        self.has_bits = any(math.isfinite(bits) for bits in self._bits.values())

    def in_order(self, models: Sequence[str]) -> list[str]:
        """The models, the lowest loss at the longest length first, and those without a loss there last."""
        losses = {model: self._loss(model, self.factors[-1]) for model in models}
        return sorted(models, key=lambda model: math.inf if math.isnan(losses[model]) else losses[model])

    def _loss(self, model: str, factor: float) -> float:
        return self._losses.get((model, factor), math.nan)

    def rank(self, model: str) -> Cell:
        """The rank at the longest length, with its interval."""
        found = self._ranks.get((model, self.factors[-1]))
        return Cell(NOTHING) if found is None else Cell(found.text(), found.rank)

    def holds(self, model: str) -> Cell:
        """The last factor whose loss is surely less than LEAST above the control's; `≥` if the next is undecided."""
        held, least = 1.0, ""
        for factor in (factor for factor in self.factors if factor > 1):
            one = self._to_control.get((model, factor))
            found = None if one is None else one.difference
            if found is None:
                break  # the model ends before
            if found.low is None or found.high is None:
                return Cell(NOTHING)
            if found.high >= LEAST:
                least = "≥ " if found.low <= 0 else ""
                break
            held = factor
        return Cell(f"{least}{held:g}x", held, kind="good" if held == self.factors[-1] else "")

    def loss(self, model: str, factor: float) -> Cell:
        loss = self._loss(model, factor)
        found = self._cell(model, factor, loss, "{:.2f}")
        if found.text == NOTHING:
            return found
        above = loss - self._loss(model, self.factors[0])
        harm = min(0.45, _HARM * above) if above > LEAST else 0.0
        return replace(found, note=self._note(model, factor), harm=harm)

    def perplexity(self, model: str, factor: float) -> Cell:
        loss = self._loss(model, factor)
        return self._cell(model, factor, math.exp(loss) if loss < 700 else loss, "{:.2f}")

    def bits(self, model: str, factor: float) -> Cell:
        return self._cell(model, factor, self._bits.get((model, factor), math.nan), "{:.3f}")

    def difference(self, model: str, factor: float) -> Cell:
        one = self._to_control.get((model, factor))
        if one is None or one.difference is None:
            return Cell(NOTHING)
        return Cell(f"{one.difference.mean:+.3f}", one.difference.mean, self._note(model, factor))

    def _cell(self, model: str, factor: float, value: float, form: str) -> Cell:
        if math.isnan(value):
            return Cell(NOTHING)
        kind, loss = "", self._losses[model, factor]
        if loss == self._best[factor] and math.isfinite(loss):
            kind = "best"
        elif math.isfinite(loss) and (rank := self._ranks.get((model, factor))) is not None and rank.low == 1:
            kind = UNDECIDED
        return Cell(form.format(value), value if math.isfinite(value) else None, kind=kind)

    def _note(self, model: str, factor: float) -> str:
        """The losses by seed, and the differences to the control and to the best with their intervals, in nats."""
        lines = []
        each = self._by_seed[model, factor]
        if len(each) > 1:
            lines.append("by seed: " + ", ".join(f"{loss:.3f}" for loss in each))
            lines.append(f"worst seed: {max(each, key=lambda loss: math.inf if math.isnan(loss) else loss):.3f}")
        else:
            lines.append("1 seed")
        for name, found in (("the control", self._to_control), ("the best", self._to_best)):
            one = found.get((model, factor))
            if one is not None and one.difference is not None:
                lines.append(f"to {name}: {one.difference.text()}")
        return "\n".join(lines)
