"""Whether our numbers order models, and lengths, as a published table does."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from extrapolate.results.verdicts import BETTER, EQUIVALENT, UNDECIDED, WORSE, Verdict
from extrapolate.statistics.comparison import Comparison

# The least difference of an ordered pair, in the table's units. Papers give no intervals, and most print two decimals.
LEAST = 0.02
LEAST_TIME = 0.1  # ratio: two trainings on one machine can differ by this much without a cause
_EXACT = 1e-9  # in float64, 3.90 - 3.88 is a little less than 0.02

Order = Literal["same", "reversed", "equivalent", "undecided", "missing"]


@dataclass(frozen=True)
class Value:
    """A number of a published table, and ours or None. model: the name of our model."""

    row: str
    column: str
    group: str
    quantity: str
    factor: float | None
    published: float
    model: str | None
    ours: float | None


Compare = Callable[[list[tuple[Value, Value]]], Mapping[tuple[Value, Value], Comparison]]


@dataclass(frozen=True)
class Pair:
    """Two values of a table that the paper orders: `lower` is the lower one there.

    They are in one column, or in one row at the shortest and the longest length. compared: our losses, `lower` minus
    `higher`, nats; None if the quantity is a time, or ours is missing.
    """

    lower: Value
    higher: Value
    compared: Comparison | None = None

    @property
    def kind(self) -> str:
        """What is compared, in words."""
        if self.lower.quantity == "time":
            return "pairs of times"
        return "rows by length" if self.lower.row == self.higher.row else "pairs of rows"

    @property
    def order(self) -> Order:
        """Whether our order is the same as the paper's or reversed, or else the verdict on our difference.

        The interval of this difference decides, without a correction for the number of differences.
        """
        if self.lower.ours is None or self.higher.ours is None:
            return "missing"
        if self.lower.quantity == "time":
            difference = self.lower.ours - self.higher.ours
            return UNDECIDED if abs(difference) < LEAST_TIME else "same" if difference < 0 else "reversed"
        orders: dict[Verdict | None, Order] = {BETTER: "same", WORSE: "reversed", EQUIVALENT: EQUIVALENT}
        return orders.get(None if self.compared is None else self.compared.word, UNDECIDED)


def pairs_of(values: Sequence[Value], compare: Compare) -> list[Pair]:
    """The pairs that a table orders. `compare` is called with those for which we have losses."""
    found = _ordered(values)
    compared = compare([pair for pair in found if pair[0].quantity != "time" and pair[0].model and pair[1].model])
    return [Pair(*pair, compared.get(pair)) for pair in found]


def _ordered(values: Sequence[Value]) -> list[tuple[Value, Value]]:
    """The ordered pairs, lower value first: in one column and group, and in one row at its first and last length."""
    found = [
        (one, other)
        for column in dict.fromkeys(value.column for value in values)
        for one, other in combinations([value for value in values if value.column == column], 2)
        if one.group == other.group
    ]
    for row in dict.fromkeys(value.row for value in values):
        by_length = [value for value in values if value.row == row and value.factor is not None]
        by_length.sort(key=lambda value: value.factor or 0.0)
        if by_length and by_length[0].factor != by_length[-1].factor:
            found.append((by_length[0], by_length[-1]))
    return [
        (one, other) if one.published < other.published else (other, one)
        for one, other in found
        if abs(one.published - other.published) >= LEAST - _EXACT
    ]


def summary(pairs: Sequence[Pair]) -> str:
    """How many pairs agree, counted separately for rows, for lengths, and for times."""
    said = []
    for kind in ("pairs of rows", "rows by length", "pairs of times"):
        orders = Counter(pair.order for pair in pairs if pair.kind == kind)
        counts = [f"{orders[order]} {words}" for order, words in _COUNTED.items() if orders[order]]
        if counts:
            said.append(f"The paper orders {orders.total()} {kind}. In ours: {', '.join(counts)}.")
    return " ".join(said) or "The paper's numbers are too close to each other to be ordered."


_COUNTED: dict[Order, str] = {
    "same": "the same way", "reversed": "the other way round", EQUIVALENT: "equivalent", UNDECIDED: "undecided",
    "missing": "missing",
}  # fmt: skip
