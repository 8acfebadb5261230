"""The rank of each model at each length, and how sure it is."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from extrapolate.reports.material import Material
from extrapolate.reports.page import Block, Heading, Table, Text
from extrapolate.reports.sections.base import Part, Section, parquet, sections
from extrapolate.results.columns import INT, REAL, TEXT, Column
from extrapolate.results.described import Described, plain
from extrapolate.results.verdicts import LEAST
from extrapolate.statistics.comparable import strict_mean
from extrapolate.statistics.intervals import FEWEST_SEEDS
from extrapolate.statistics.ranks import intervals_of
from extrapolate.statistics.seeds import seeds_of
from extrapolate.statistics.sums import Setting

_NO_INTERVAL = "`n_clusters` is below 10, or models share no seed"
LEADERBOARD = Described(
    "leaderboard", "`leaderboard.parquet` of a report with `--leaderboard`", "protocol, length and model",
    plain(
        Column("protocol", TEXT, meaning="Which tokens were scored with which context."),
        Column("factor", REAL, meaning="The evaluation length divided by the training length L."),
        Column("model", TEXT, meaning="The model's name; runs that differ only in the seed are one model."),
        Column("rank", INT, meaning="Its rank by mean loss among the models that reach this length; 1 is the lowest."),
        Column("low", INT, "", False, "The lower end of the rank's 95 % interval.", _NO_INTERVAL),
        Column("high", INT, "", False, "The upper end of the same interval.", _NO_INTERVAL),
        Column("models", INT, meaning="The number of models that reach this length."),
        Column("loss", REAL, "nats per target", meaning="The mean loss over seeds."),
        Column("seeds", INT, meaning="The number of seeds in the mean."),
        Column("clusters", TEXT, meaning="What was resampled: `documents`, or `stretches` of 16 L tokens."),
        Column("n_clusters", INT, meaning="The number of them."),
        Column("runs", TEXT, meaning="The names of the model's runs, as in `evals.parquet`."),
    ),
)  # fmt: skip

EXPLAINED = """\
Models are ranked by their mean loss; 1 is the lowest. Brackets hold the 95 % interval of a rank. It begins at 1 plus
the number of models that are significantly better, and ends at the number of models that are not significantly worse,
the model itself included. Significant means that the difference is at least {least:g} nats and that its interval, which
holds for all pairs with this model at once, excludes zero. All models are resampled together, over the same {clusters}.
The intervals of ranks are not simultaneous: at most about one in 20 is wrong."""
FEW_SEEDS = f"""\
With fewer than {FEWEST_SEEDS} seeds, ranks and intervals are about these runs: other seeds may give another order."""


@sections.register("leaderboard")
class Leaderboard(Section):
    """The models ranked at each length, each rank with its interval."""

    chapter = "Leaderboard"
    place = 8
    files = ("leaderboard.parquet",)
    tables = (LEADERBOARD,)

    @staticmethod
    def subjects(material: Material) -> Sequence[str]:
        return ["leaderboard"] if material.leaderboard and material.rows else []

    @staticmethod
    def part(material: Material, subject: str) -> Part:
        blocks: list[Block] = []
        every = []
        for protocol, rows in material.rows.items():
            sums = {setting.factor: setting for setting in material.sums if setting.protocol == protocol}
            table = pd.DataFrame(
                [row for factor, at in rows.groupby("factor") for row in _ranked(at, sums.get(float(str(factor))))]
            )
            every.append(table)
            clusters = f"{table['n_clusters'].max()} {table['clusters'].iloc[0]}"
            blocks += [
                Heading(2, f"Ranks, protocol {protocol}"),
                Table(_shown(table), f"{protocol}, rank by loss at each length, with its 95 % interval"),
                Text(EXPLAINED.format(clusters=clusters, least=LEAST)),
            ]
            if unranked := sorted(set(rows["model"]) - set(table["model"])):
                blocks.append(
                    Text(f"Without a loss at any of these lengths, and so not ranked: {', '.join(unranked)}.")
                )
            if table["low"].isna().any():
                blocks.append(
                    Text("A rank without an interval has fewer than 10 clusters, or shares no seed with others.")
                )
            if (table["seeds"] < FEWEST_SEEDS).any():
                blocks.append(Text(FEW_SEEDS))
        return Part(blocks, {"leaderboard.parquet": parquet(pd.concat(every, ignore_index=True))})


def _ranked(rows: pd.DataFrame, sums: Setting | None) -> list[dict[str, Any]]:
    """The rows of the leaderboard at one length, the lowest loss first; models without a loss there are left out."""
    loss = rows.groupby("model", sort=False)["loss"].agg(strict_mean).dropna()
    if loss.empty or sums is None:
        return []
    found = intervals_of([sums.models[str(model)] for model in loss.index])
    made = []
    for at, (model, mean) in enumerate(loss.items()):
        mine = rows[rows["model"] == model]
        made.append(
            {
                "protocol": rows["protocol"].iloc[0], "factor": rows["factor"].iloc[0], "model": model,
                "rank": 1 + int((loss < mean).sum()), "low": None if found is None else int(found[0][at]),
                "high": None if found is None else int(found[1][at]), "models": len(loss), "loss": mean,
                "seeds": max(1, len(seeds_of(mine))), "clusters": sums.clusters, "n_clusters": sums.count,
                "runs": ", ".join(sorted(set(mine["run"]))),
            }
        )  # fmt: skip
    return sorted(made, key=lambda row: (row["rank"], row["model"]))


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """A column for each length and a row for each model, the best at the longest length first."""
    longest = table[table["factor"] == table["factor"].max()]
    order = dict.fromkeys([*longest["model"], *table["model"]])
    cells: dict[str, dict[str, str]] = {model: {"Model": model} for model in order}
    for row in table.sort_values("factor").to_dict("records"):
        interval = "" if pd.isna(row["low"]) else f" [{row['low']:.0f}, {row['high']:.0f}]"
        cells[row["model"]][f"ev={row['factor']:g}"] = f"{row['rank']}{interval}"
    for model, seeds in table.groupby("model")["seeds"].max().items():
        cells[str(model)]["Seeds"] = str(seeds)
    return pd.DataFrame(cells.values()).fillna("n/a")
