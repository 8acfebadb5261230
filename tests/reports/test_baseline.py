"""report --check: which losses got worse than in a baseline, and what cannot be told."""

import math
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import extrapolate as xt
from extrapolate.reports import baseline
from extrapolate.reports.gather import gather
from extrapolate.reports.material import collect

ROOT = Path(xt.__file__).parents[1]
pytestmark = pytest.mark.usefixtures("without_pictures")


def adding(nats, factor=2.0, **changes):
    """What adds to the losses of one length, and changes columns."""

    def change(row):
        more = nats(row) if callable(nats) else nats
        return row | changes | ({"loss": row["loss"] + more} if row["factor"] == factor else {})

    return change


def by_document(mean: float, spread: float):
    """Differences that vary between documents, with a mean over targets: for both tables."""
    rng = np.random.default_rng(5)
    rows = pd.read_parquet(Path(__file__).parents[1] / "fixtures/rope/eval_documents.parquet")
    effects = {}
    for protocol in ("windows", "fixed-target"):
        targets = rows[(rows["factor"] == 2) & (rows["protocol"] == protocol) & (rows["extension"] == "as-trained")]
        targets = targets.groupby("document")["n_targets"].sum()
        effect = pd.Series(rng.normal(0, 1, len(targets)), targets.index)
        effect -= np.average(effect, weights=targets)
        effects[protocol] = effect * spread / effect.std()

    def more(row):
        return mean + (effects[row["protocol"]].get(row["document"], 0.0) if "document" in row else 0.0)

    return more


@pytest.fixture
def before(write_run, tmp_path):
    return write_run(tmp_path / "before/rope")


def checked(now, before):
    """What a report on `now` finds, without its pictures, which take seconds."""
    evaluated = gather([now])
    evals = evaluated.evals()
    material = collect(evaluated, evals, evaluated.documents(), None, {})
    shown = pd.concat(material.rows.values())
    with np.errstate(invalid="ignore"):  # infinite losses
        return baseline.checked(
            baseline.read_baseline(before, Path("report")), baseline.TOLERANCE, evals, shown, material.documents
        )


def verdicts(found) -> dict[tuple[str, float, str], str]:
    return {(row.protocol, row.factor, row.model): row.verdict for row in found.rows.itertuples()}


def test_a_loss_that_got_worse_ends_the_command_with_1_after_the_report_is_written(cli, write_run, before, tmp_path):
    write_run(tmp_path / "now/rope", adding(0.05))
    ended = cli("report", "now", "--check", before, "--format", "md")  # as for a comment on a pull request
    assert ended.error(1) == (
        f"4 of 8 losses are worse than in {before} by more than 0.02 nats: RoPE at 2x (fixed-target) +0.050, "
        "RoPE + PI at 2x (fixed-target) +0.050, RoPE at 2x (windows) +0.050, RoPE + PI at 2x (windows) +0.050."
    )
    assert ended.out.startswith("**4 of 8 losses are worse than in ")
    assert "\n### Windows, loss in nats per token\n\n| Model | Loss (ev=1) | Loss (ev=2) |" in ended.out
    assert "wrote report/" in ended.err
    assert "wrote report/" not in ended.out
    table = pd.read_parquet(tmp_path / "report/check.parquet").set_index(["protocol", "factor", "model"])
    worse = table.loc["windows", 2.0, "RoPE"]
    assert worse["now"] - worse["before"] == pytest.approx(0.05)
    assert worse["difference"] == pytest.approx(0.05)
    assert set(table.xs(1.0, level="factor")["verdict"]) == {"equivalent"}
    page = (tmp_path / "report/report.md").read_text()
    assert "\n# Against the baseline\n\n**4 of 8 losses are worse" in page
    for shown in (page, ended.out):
        assert "| RoPE | windows | 2 | 3.773 | 3.823 | +0.050 | [+0.050, +0.050] |" in shown
    assert "With one seed, the interval is about these runs" in page


def test_what_is_within_the_tolerance_or_better_passes(cli, write_run, before, tmp_path):
    write_run(tmp_path / "now/rope", adding(0.05))
    ended = cli("report", "now", "--check", before, "--tolerance", "0.06").succeeded()
    assert f"None of 8 losses is worse than in {before} (tolerance 0.06 nats)." in ended.err
    found = checked(before, tmp_path / "now")
    assert set(verdicts(found).values()) == {"better", "equivalent"}
    assert verdicts(found)["windows", 2.0, "RoPE"] == "better"


def test_an_earlier_report_is_a_baseline(write_run, before, tmp_path):
    (write_run(tmp_path / "earlier") / "report.md").touch()
    now = write_run(tmp_path / "now/rope", adding(0.05))
    for earlier in (tmp_path / "earlier", tmp_path / "earlier/evals.parquet"):
        found = checked(now, earlier)
        assert len(found.worse) == 4
        assert found.rows["low"].notna().all()
        assert found.notes == ()


def test_a_difference_that_is_not_sure_is_not_worse_unless_there_are_no_documents(write_run, before, tmp_path):
    now = write_run(tmp_path / "now/rope", adding(by_document(0.03, 0.2)))
    found = checked(now, before)
    row = found.rows.set_index(["protocol", "factor", "model"]).loc["windows", 2.0, "RoPE"]
    assert row["low"] < 0 < row["high"]
    assert verdicts(found)["windows", 2.0, "RoPE"] == "undecided"
    (before / "eval_documents.parquet").unlink()
    found = checked(now, before)
    assert len(found.worse) == 4
    assert found.rows["low"].isna().all()
    assert found.notes[0].startswith("8 of 8 differences have no interval, and are judged by the tolerance alone")


def test_the_family_is_all_rows_with_an_interval(write_run, before, tmp_path):
    """The same difference is sure where it is the only one, and not among eight."""
    change = adding(by_document(0.03, 0.045))

    def one(row):
        return row if (row["protocol"], row["factor"], row["extension"]) == ("windows", 2.0, "as-trained") else None

    found = checked(write_run(tmp_path / "now/rope", change), before)
    row = found.rows.set_index(["protocol", "factor", "model"]).loc["windows", 2.0, "RoPE"]
    assert row["low"] > 0
    assert row["p_corrected"] > 0.05
    assert row["verdict"] == "undecided"
    alone = checked(
        write_run(tmp_path / "alone/rope", lambda row: one(row) and change(row)), write_run(tmp_path / "one/rope", one)
    )
    assert alone.rows["low"].item() == row["low"]
    assert alone.rows["p_corrected"].item() < 0.05
    assert alone.rows["verdict"].item() == "worse"


@pytest.mark.parametrize(
    ("now", "before", "seeds", "verdict"),
    [
        ({0: 0.0, 1: 0.05}, {1: 0.0, 2: -9.0}, 1, "worse"),  # seed 1 alone is compared
        ({0: 0.01, 1: 0.09}, {0: 0.0, 1: 0.0}, 2, "undecided"),  # two seeds that differ are not sure
    ],
)
def test_seeds_are_paired(write_run, tmp_path, now, before, seeds, verdict):
    for side, losses in (("now", now), ("before", before)):
        for seed, more in losses.items():
            run = f"rope-{seed}"
            write_run(tmp_path / side / run, adding(more, seed=seed, run=run))
    found = checked(tmp_path / "now", tmp_path / "before")
    at_2x = found.rows[found.rows["factor"] == 2]
    assert at_2x["difference"].to_numpy() == pytest.approx(0.05)
    assert set(at_2x["seeds"]) == {seeds}
    assert set(at_2x["verdict"]) == {verdict}


def test_what_is_not_compared_is_said(write_run, tmp_path):
    write_run(tmp_path / "now/rope")
    write_run(tmp_path / "now/new", lambda row: row | {"run": "new", "model": f"New {row['model']}"})
    write_run(tmp_path / "now/seeded", lambda row: row | {"run": "seeded", "model": f"Seeded {row['model']}"})
    write_run(tmp_path / "before/rope", lambda row: row | {"targets_hash": "others"} if row["factor"] == 2 else row)
    write_run(
        tmp_path / "before/seeded", lambda row: row | {"run": "seeded", "seed": 7, "model": f"Seeded {row['model']}"}
    )
    found = checked(tmp_path / "now", tmp_path / "before")
    assert set(verdicts(found)) == {
        (protocol, 1.0, model) for protocol in ("windows", "fixed-target") for model in ("RoPE", "RoPE + PI")
    }
    said = " ".join(found.notes)
    for words in (
        "they are not in the baseline: New RoPE at 1x (fixed-target), New RoPE + PI at 1x",
        "they are on other targets than in the baseline: RoPE at 2x (fixed-target), RoPE + PI at 2x (fixed-target)",
        "they are of other seeds than in the baseline: Seeded RoPE at 1x (fixed-target)",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seq_len": 32}, "seq_len 32"), ({"precision": "bf16"}, "precision bf16"),
        ({"split": "validation", "precision": "int8"}, "precision int8 and split validation"),
    ],
)  # fmt: skip
def test_models_of_the_baseline_with_other_rows_are_named(write_run, before, tmp_path, changed, words):
    now = write_run(tmp_path / "now/rope")
    assert not any("not checked" in note for note in checked(now, tmp_path / "before").notes)
    named = {"run": "other", "model": "Other"}
    write_run(tmp_path / "before/other", lambda row: row | named | {k: v for k, v in changed.items() if k in row})
    found = checked(now, tmp_path / "before")
    assert f"in {tmp_path}/before, not checked, for they have {words}: Other" in found.notes


def test_what_the_baseline_leaves_out_is_said(write_run, before, tmp_path):
    write_run(tmp_path / "elsewhere/alibi", lambda row: row | {"run": "alibi", "model": f"ALiBi, {row['model']}"})
    (tmp_path / "before/alibi").symlink_to(tmp_path / "elsewhere/alibi")
    found = checked(tmp_path / "before/rope", tmp_path / "before")
    assert any("left out, for they are links" in note and "before/alibi" in note for note in found.notes)


def test_documents_that_contradict_the_baseline_are_refused(write_run, before, tmp_path):
    now = write_run(tmp_path / "now/rope", adding(1.0))
    (tmp_path / "before/rope/evals.parquet").write_bytes((now / "evals.parquet").read_bytes())
    with pytest.raises(xt.UserError, match="contradict each other"):
        checked(now, tmp_path / "before")


def test_a_model_that_is_gone_is_worse(write_run, before, tmp_path):
    now = write_run(tmp_path / "now/rope")
    write_run(tmp_path / "before/gone", lambda row: row | {"run": "gone", "model": f"Gone {row['model']}"})
    found = checked(now, tmp_path / "before")
    assert found.summary().startswith("8 of 16 losses are worse than in ")
    assert " by more than 0.02 nats, or gone: " in found.summary()
    assert "Gone RoPE at 1x (fixed-target) gone, " in found.summary()
    table = found.rows.set_index("model")
    assert table.loc["Gone RoPE", "now"].isna().all()
    assert set(table.loc["Gone RoPE", "verdict"]) == {"worse"}
    assert set(table.loc["RoPE", "verdict"]) == {"equivalent"}


def test_a_seed_that_is_gone_ends_the_command_with_1(cli, write_run, tmp_path):
    """Of RoPE, seed 1. NoPE has both; the report shows seed 0 of it alone, and its seed 1 is not gone."""
    for side, runs in (("before", ("rope-0", "rope-1", "none-0", "none-1")), ("now", ("rope-0", "none-0", "none-1"))):
        for run in runs:
            name, seed = run.split("-")
            model = {"model": "NoPE", "config_hash": "none"} if name == "none" else {}
            kept = {"run": run, "seed": int(seed)} | model

            def change(row, kept=kept):
                return row | kept if row["extension"] == "as-trained" else None

            write_run(tmp_path / side / run, change)
    said = cli("report", "now", "--check", "before").error(1)
    assert said.startswith("4 of 8 losses are worse than in before by more than 0.02 nats, or gone: ")
    assert "RoPE at 2x (windows) +0.000 (seed 1 gone)" in said
    assert "NoPE" not in said
    table = pd.read_parquet(tmp_path / "report/check.parquet").set_index("model")
    assert set(table.loc["RoPE", "seeds_gone"]) == {"seed 1"}
    assert set(table.loc["RoPE", "verdict"]) == {"worse"}
    assert table.loc["NoPE", "seeds_gone"].isna().all()
    assert "1 (seed 1 gone)" in (tmp_path / "report/report.md").read_text()
    assert checked(tmp_path / "before", tmp_path / "now").worse.empty


@pytest.mark.parametrize("loss", [None, math.nan, math.inf])
def test_a_loss_that_is_gone_or_infinite_is_worse(write_run, before, tmp_path, loss):
    def change(row):
        return row | ({"loss": loss} if row["factor"] == 2 and row["extension"] == "pi" else {})

    found = checked(write_run(tmp_path / "now/rope", change), before)
    worse = {place for place, verdict in verdicts(found).items() if verdict == "worse"}
    assert worse == {("windows", 2.0, "RoPE + PI"), ("fixed-target", 2.0, "RoPE + PI")}
    shown = "+inf" if loss == math.inf else "gone"
    assert f"RoPE + PI at 2x (fixed-target) {shown}, " in found.summary()
    assert verdicts(checked(before, tmp_path / "now"))["windows", 2.0, "RoPE"] == "equivalent"


def test_sizes_in_names_and_other_settings(write_run, tmp_path):
    """Two sizes now, one of them before: the name before has no size in it, and the models are matched."""
    for layers in (1, 2):
        run = f"rope-{layers}"
        changes = {"run": run, "layers": layers, "config_hash": f"{layers} layers"}
        write_run(tmp_path / "now" / run, adding(0.05 * layers, **changes))
    write_run(tmp_path / "before/rope-2", adding(0.0, run="rope-2", layers=2, config_hash="2 layers"))
    found = checked(tmp_path / "now", tmp_path / "before")
    assert set(found.rows["model"]) == {"RoPE, 2 layers", "RoPE + PI, 2 layers"}
    assert found.rows[found.rows["factor"] == 2]["difference"].to_numpy() == pytest.approx(0.1)
    assert not any("settings" in note for note in found.notes)
    write_run(tmp_path / "changed/rope-2", adding(0.0, run="rope-2", layers=2, config_hash="another rate"))
    notes = checked(tmp_path / "before", tmp_path / "changed").notes
    assert notes == ("trained with other settings than in the baseline: RoPE, RoPE + PI",)
    for folder, sha256 in (("first", "a"), ("edited", "b")):
        write_run(
            tmp_path / folder / "rope",
            lambda row, sha256=sha256: row | {"extension_sha256": sha256 if row["extension"] == "pi" else None},
        )
    notes = checked(tmp_path / "edited", tmp_path / "first").notes
    assert notes == ("extended by other code than in the baseline: RoPE + PI",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"corpus_hash": "other"}, "cannot be the baseline: no row has corpus_hash e11bd6eb9efcd88d: there are other"),
        ({"seq_len": 32}, "cannot be the baseline: no row has seq_len 16: there are 32"),
        ({"targets_hash": "other"}, "shares no loss with this report (not checked, for they are on other targets than"),
        ({"protocol": "another"}, "(not checked, for they are not in the baseline: RoPE at 1x (fixed-target)"),
    ],
)
def test_a_baseline_that_shares_nothing_is_refused(cli, write_run, before, tmp_path, changes, words):
    write_run(tmp_path / "other/rope", lambda row: row | changes)
    assert words in cli("report", before, "--check", "other").error()
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--check", "nowhere"], "nowhere: no such file or folder; name an earlier report"),
        (["--check", "before/rope/eval_documents.parquet"], "name the evals.parquet beside it, or their folder"),
        (["--check", "empty"], "empty holds no evaluated run"),
        (["--check", "report"], "the baseline report is in report, which this report replaces"),
        (["--check", "report/evals.parquet"], "choose another --out"),
        (["--check", "before", "--tolerance", "-1"], "--tolerance -1.0 is no tolerance: it is in nats, 0 or more"),
        (["--check", "before", "--tolerance", "nan"], "is no tolerance"),
        (["--tolerance", "0.1"], "name the baseline with --check"),
    ],
)
def test_bad_input(cli, before, tmp_path, flags, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "report").mkdir()
    for name in ("evals.parquet", "eval_documents.parquet"):
        shutil.copy(before / name, tmp_path / "report")
    (tmp_path / "report/report.md").touch()
    assert words in cli("report", "before", *flags).error()
    assert not (tmp_path / "report/check.parquet").exists()


def test_the_commands_of_the_page_run(cli, write_run, tmp_path):
    page = (ROOT / "docs/sharing.md").read_text(encoding="utf-8").partition("\n## Combine ")[0]
    made = subprocess.run(["make", "report", "QUICK=1", "-n"], cwd=ROOT, capture_output=True, text=True, check=True)
    study, scale = re.search(r"sweep \S*/(\S+)\.toml --scale (\w+)", made.stdout).groups()
    report = f"sweeps/{study}-{scale}/report"
    write_run(tmp_path / "ckpt/rope")
    (write_run(tmp_path / report) / "report.md").touch()
    shell = re.findall(r"^((?:mkdir|cp) .*)$", page, re.MULTILINE)
    subprocess.run("\n".join(shell), shell=True, cwd=tmp_path, check=True)
    lines = [" ".join(line.split()) for line in re.findall(r"extrapolate (report [^`]*?)(?:>>|\n`|\n\n)", page)]
    assert len(lines) == 2
    for line in lines:
        cli(*shlex.split(line)).succeeded()
    assert report in lines[1]
    assert (tmp_path / "checked/check.parquet").exists()
    (python,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(python, {})
