"""How often a report says wrongly that its answer still changes: python tools/doubling_coverage.py [REPORTS]

The models of tools/answer_coverage.py, without extensions, at the end and at half the budget. The differences of half
the budget are those of the end less a share of them, which is what the last doubling of the tokens truly changed.
"""

import sys
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from answer_coverage import BOOKS, Population, alike, as_books

from extrapolate.reports.fdr import family
from extrapolate.reports.sections.doubling import SHARE, doublings

MODELS = [model for model in BOOKS if " + " not in model]
STEPS = {"half": 50, "last": 100}


@dataclass(frozen=True)
class Change:
    """What the last doubling changed: this share of every difference, and by chance with every seed, nats."""

    population: Population
    share: float
    spread: float

    def report(self, rng: np.random.Generator, seeds: int) -> bool:
        """Whether a report of such models says that its answer still changes."""
        last = self.population.rows(rng, seeds)
        half = replace(
            self.population, rise_M=self.population.rise_M * (1 - self.share), spread_M=0 * self.population.spread_M
        )
        drawn = {run: rng.normal(0, self.spread) * (seeds > 1) for run in dict.fromkeys(last["run"])}
        before = half.rows(rng, seeds)
        key = ["run", "document"]
        paired = last[key].merge(before, on=key)  # the same documents, whose sizes are those of the end
        rise = paired["loss"] - paired["control_loss"] + paired["run"].map(drawn)
        before = last.assign(loss=last["control_loss"] + rise.to_numpy())
        every = pd.concat([last.assign(step=STEPS["last"]), before.assign(step=STEPS["half"])], ignore_index=True)
        every = every.assign(precision="fp32", split="test", position=0)
        rows = every[["run", "step"]].drop_duplicates().assign(tokens=lambda one: 1000 * one["step"], annealed=True)
        compared = family(last.drop_duplicates("model"), last, self.population.models, True)
        return any(one.moving for one in doublings(rows, every, compared))


CHANGES = {
    "nothing": Change(as_books("", MODELS), 0.0, 0.02),
    "nothing, of equal models": Change(alike("", 0.02, 0.02, MODELS), 0.0, 0.02),
    "a quarter of every rise": Change(as_books("", MODELS), 0.25, 0.02),
    "half of every rise": Change(as_books("", MODELS), 0.5, 0.02),
}


def table(reports: int) -> pd.DataFrame:
    """How many reports of each kind say that their answer still changes."""
    rows = []
    for what, change in CHANGES.items():
        for seeds in (1, 3):
            rng = np.random.default_rng([len(rows), seeds])
            said = sum(change.report(rng, seeds) for _ in range(reports))
            rows.append({"truly changed": what, "seeds": seeds, "say so": f"{100 * said / reports:.1f} %"})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    found = table(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print(
        f"{len(MODELS)} models; a change counts above {SHARE:.2g} of its difference\n{found.to_markdown(index=False)}"
    )
