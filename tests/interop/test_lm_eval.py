"""Benchmarks: our class gives the scores of lm-eval's own on the exported folder, and the rows have the settings."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models

import extrapolate as xt
from extrapolate import results
from extrapolate.interop import benchmarks
from extrapolate.reports import tasks
from extrapolate.runs.run import Run

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'extrapolate[lm-eval]'")
pytest.importorskip("accelerate", reason="lm-eval's own model needs accelerate")
pytest.importorskip("extrapolate.transformers")  # exported models load without the code in their folder
Instance = pytest.importorskip("lm_eval.api.instance").Instance
RunLM = pytest.importorskip("extrapolate.interop.lm_eval").RunLM
CountingLM = pytest.importorskip("extrapolate.interop.lm_eval").CountingLM

pytestmark = pytest.mark.usefixtures("offline")
KNOWN = Path(lm_eval.__file__).parent / "tasks"
HELLASWAG = KNOWN / "hellaswag"
QUESTIONS, LONG = 12, 48


def scores_of(table: pd.DataFrame) -> dict[tuple[str, str], float]:
    return dict(zip(zip(table["task"], table["metric"], strict=True), table["value"], strict=True))


@pytest.mark.parametrize(("encoding", "length"), [("rope", None), ("expe", LONG)])
def test_scores_are_those_of_lm_evals_own_model_on_the_exported_folder(
    encoding: str, length: int | None, ckpt: Path, copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    run = Run.open(ckpt / encoding)
    folder = xt.export(run, tmp_path / "exported").folder
    asked = {"include_path": HELLASWAG, "data_dir": copies, "device": "cpu", "trust_code": True}
    ours = xt.evaluate_tasks(run, "hellaswag", length=length, **asked)
    theirs = HFLM(str(folder), batch_size=5, device="cpu", dtype="float32", max_length=length)
    monkeypatch.chdir(copies)
    manager = TaskManager(include_path=str(HELLASWAG), include_defaults=False)
    found = lm_eval.simple_evaluate(theirs, tasks=["hellaswag"], task_manager=manager)
    expected = found["results"]["hellaswag"]
    assert scores_of(ours) == {("hellaswag", name): expected[f"{name},none"] for name in ("acc", "acc_norm")}
    assert ours["stderr"].tolist() == [expected["acc_stderr,none"], expected["acc_norm_stderr,none"]]
    assert 0 < expected["acc,none"] < 1
    # And every likelihood that the scores are made of.
    requests = [Instance("loglikelihood", {}, sample["arguments"][0], 0) for sample in found["samples"]["hellaswag"]]
    requests.append(Instance("loglikelihood", {}, ("", "no context"), 0))
    requests += [Instance("loglikelihood", {}, ("some words", f" {letter}"), 0) for letter in "abcd"]
    lm = RunLM(run, length=length, device="cpu")
    blank, none = (Instance("loglikelihood", {}, pair, 0) for pair in ((" ", "a b"), ("", " a b")))
    assert lm.loglikelihood([blank]) == lm.loglikelihood([none])
    for mine, other in zip(lm.loglikelihood(requests), theirs.loglikelihood(requests), strict=True):
        assert mine[0] == pytest.approx(other[0], abs=1e-4)
        assert mine[1] == other[1]
    # Of different questions: in a text that repeats itself lm-eval's own model takes two windows of a batch for one.
    text = "".join(request.args[0] for request in requests[:36:4])
    whole = [Instance("loglikelihood_rolling", {}, (text,), 0)]
    assert lm.loglikelihood_rolling(whole) == pytest.approx(theirs.loglikelihood_rolling(whole), abs=1e-3)


def test_greedy_decoding_gives_an_answer_only_if_each_of_its_tokens_is_the_likeliest(tmp_path: Path) -> None:
    """Of a model that counts: token n is followed by n + 1, which is e^5 times as likely as any other."""
    words = Tokenizer(models.WordLevel({str(n): n for n in range(8)}, unk_token="0"))
    counting = xt.foreign(lambda tokens_BT: 5 * torch.eye(8)[(tokens_BT + 1) % 8], "N", 16, words, out=tmp_path / "n")
    answers = {(0, 1, 2, 3): 3, (0, 1, 3, 4): 2, (0, 4, 5, 6): 2, (0, 1, 2, 5): 2, (0, 6, 1, 4): 0}
    asked = [(None, [before], answer) for before, *answer in answers]
    asked += [(None, [0, 1, 3], [4]), (None, [0, 1, 2], [5])]  # of the same inputs as longer answers
    found = RunLM(counting, length=16, device="cpu")._loglikelihood_tokens(asked)
    assert [greedy for _, greedy in found] == [True, False, False, False, False, True, False]
    all_others = math.log(math.exp(5) + 7)
    expected = [5 * right - 3 * all_others for right in answers.values()] + [5 - all_others, -all_others]
    assert [likelihood for likelihood, _ in found] == pytest.approx(expected, abs=1e-5)


def test_texts_that_differ_in_their_last_token_alone_are_computed_once(
    ckpt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = RunLM(ckpt / "rope", length=LONG, device="cpu")
    asked = [(None, list(range(5, 25)), [last]) for last in (30, 31, 32, 33)]  # as MMLU's answers
    asked += [(None, list(range(6, 25)), [40, last]) for last in (30, 31)]  # of one length with those
    asked += [(None, [*range(6, 25), 40], [32]), (None, list(range(60)), [34]), (None, list(range(60)), [34])]
    alone = [lm._loglikelihood_tokens([one])[0] for one in asked]
    inputs, plain = [], lm.model.hidden

    def hidden(tokens_BT: Any, *others: Any) -> Any:
        inputs.append(tokens_BT.numel())
        return plain(tokens_BT, *others)

    monkeypatch.setattr(lm.model, "hidden", hidden)
    together = lm._loglikelihood_tokens(asked)
    assert [one for one, _ in together] == pytest.approx([one for one, _ in alone], abs=1e-5)
    assert [likeliest for _, likeliest in together] == [likeliest for _, likeliest in alone]
    assert sorted(inputs) == [20, 20, LONG]


def test_rows_say_what_was_asked_and_are_kept(ckpt: Path, copies: Path) -> None:
    run = ckpt / "rope"
    asked = {"include_path": HELLASWAG, "data_dir": copies, "device": "cpu", "trust_code": True}
    table = xt.evaluate_tasks(run, "hellaswag", extend="pi:factor=4", length=LONG, **asked)
    assert table["extension"].tolist() == ["as-trained"] * 2 + ["pi:factor=4"] * 2
    assert set(table["length"]) == {LONG}
    assert set(table["factor"]) == {3.0}
    assert set(table["n_questions"]) == {QUESTIONS}
    assert set(table["shots"]) == {0}
    assert set(table["lm_eval_version"]) == {lm_eval.__version__}
    assert table["targets_hash"].nunique() == 1
    kept = xt.rows(run, "tasks")
    assert kept.to_dict("records") == table[list(kept)].to_dict("records")
    short = xt.evaluate_tasks(run, "hellaswag", limit=5, **asked)
    assert set(short["n_questions"]) == {5}
    assert set(short["n_cut"]) == {5}  # each has more than 16 tokens
    assert short["targets_hash"].iloc[0] != table["targets_hash"].iloc[0]
    kept = xt.rows(run, "tasks")
    assert len(kept) == 6
    with_shots = xt.evaluate_tasks(run, "hellaswag", length=LONG, shots=2, limit=0.5, **asked)
    assert set(with_shots["shots"]) == {2}
    assert set(with_shots["n_questions"]) == {QUESTIONS // 2}


GROUP = """
group: {name}
task: [hellaswag, arc_easy]
"""


@pytest.mark.usefixtures("few_tasks")
def test_a_group_has_rows_of_its_own_where_it_has_a_score(ckpt: Path, copies: Path, tmp_path: Path) -> None:
    scored = "aggregate_metric_list: [{metric: acc, weight_by_size: true}]"
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/both.yaml").write_text(GROUP.format(name="both") + scored)
    (tmp_path / "tasks/loose.yaml").write_text(GROUP.format(name="loose"))
    asked = {
        "include_path": tmp_path / "tasks",
        "data_dir": copies,
        "device": "cpu",
        "length": LONG,
        "trust_code": True,
    }
    both, loose = (xt.evaluate_tasks(ckpt / "rope", name, **asked) for name in ("both", "loose"))
    accuracy = both[both["metric"] == "acc"].set_index("task")
    assert accuracy["group"].fillna("").to_dict() == {"hellaswag": "both", "arc_easy": "both", "both": ""}
    assert accuracy.loc["both", "n_questions"] == 2 * QUESTIONS
    assert accuracy.loc["both", "value"] == pytest.approx(accuracy["value"].iloc[:2].mean())
    assert [table["Model"].tolist() for _, table in tasks.by_shots(both)] == [["RoPE"]]
    assert [set(table) for _, table in tasks.by_shots(both)] == [{"Model", "Length", "both acc"}]
    assert set(loose["task"]) == {"hellaswag", "arc_easy"}
    assert loose["group"].isna().all()
    hashes = accuracy["targets_hash"]
    members = [f"{name}={hashes[name]}" for name in ("hellaswag", "arc_easy")]
    assert set(accuracy.loc["both", "members"].split()) == set(members)
    assert both.loc[both["task"] != "both", "members"].isna().all()


def test_a_model_of_another_library_is_asked_too(ckpt: Path, copies: Path, tmp_path: Path) -> None:
    run = Run.open(ckpt / "rope")
    other = xt.foreign(run.model, "Other", seq_len=16, tokenizer=run.path, out=tmp_path / "other")
    asked = {"include_path": HELLASWAG, "data_dir": copies, "device": "cpu", "length": LONG, "trust_code": True}
    table = xt.evaluate_tasks([run, other], "hellaswag", **asked)
    ours, theirs = (mine for _, mine in table.groupby("model", sort=False))
    assert scores_of(ours) == scores_of(theirs)
    assert theirs["imported"].notna().all()
    assert set(theirs["targets_hash"]) == set(ours["targets_hash"])
    prompt = [Instance("generate_until", {}, ("some words", {"until": [], "max_gen_toks": 9}), 0)]
    lms = (RunLM(one, length=LONG, device="cpu") for one in (run, other))
    assert next(lms).generate_until(prompt) == next(lms).generate_until(prompt)


def test_an_extension_is_set_for_the_length(ckpt: Path) -> None:
    run = Run.open(ckpt / "rope")
    request = [Instance("loglikelihood", {}, ("some words", " more words"), 0)]
    short, long, fixed = (
        RunLM(run, length=length, extend=extend, device="cpu").loglikelihood(request)[0][0]
        for length, extend in ((16, "pi"), (64, "pi"), (64, "pi:factor=4"))
    )
    assert short == RunLM(run, length=64, device="cpu").loglikelihood(request)[0][0]
    assert long == fixed
    assert abs(long - short) > 1e-4


@pytest.mark.usefixtures("few_tasks", "without_pictures")
def test_a_report_has_the_scores_beside_the_papers(evaluated: Path, copies: Path, tmp_path: Path, cli: Any) -> None:
    folder = shutil.copytree(evaluated, tmp_path / "runs")
    asked = ["--data-dir", copies, "--device", "cpu", "--length", LONG]
    outcome = cli("eval-tasks", folder / "rope", folder / "expe", "--tasks", "hellaswag", "--tasks", "arc_easy", *asked)
    assert "hellaswag acc_norm" in outcome.succeeded().out
    said = cli("report", folder, "--out", tmp_path / "report").succeeded().err
    page = (tmp_path / "report/report.md").read_text()
    assert "# Benchmarks" in page
    for task in ("hellaswag", "arc_easy"):
        left_out = f"ask {task}: left out the models that were not evaluated with it (Learned, NoPE)"
        assert left_out in said
        assert left_out in page.partition("## What was left out")[2]
    rows = results.read(tmp_path / "report/eval_tasks.parquet", results.TASKS)
    mine = {row["task"]: row["value"] for row in rows if row["model"] == "RoPE" and row["metric"] == "acc"}
    assert "| Llama S (paper) | 0.29 | 0.26 | 0.24 | 0.30 |" in page
    assert f"| RoPE, length {LONG}, no examples | {mine['hellaswag']:.3f} |  |  | {mine['arc_easy']:.3f} |" in page
    lines = cli("eval-tasks", folder / "none", "--tasks", "hellaswag", "--limit", 2, "--json", *asked).succeeded().out
    names = {column.name for column in results.TASKS.columns}
    for line in lines.splitlines():
        assert set(json.loads(line)) == names


@pytest.mark.usefixtures("few_tasks", "without_pictures")
def test_the_commands_of_the_page_run(ckpt: Path, copies: Path, tmp_path: Path, cli: Any) -> None:
    (tmp_path / "copies").symlink_to(copies)
    block = re.search(r"```sh\n(.*?)```", (Path(__file__).parents[2] / "docs/benchmarks.md").read_text(), re.DOTALL)
    assert block is not None
    commands = [line.split() for line in block[1].splitlines()]
    assert len(commands) == 4
    for command in commands:
        assert command.pop(0) == "extrapolate"
        cli(*command, *(["--device", "cpu"] if command[0] == "eval-tasks" else [])).succeeded()
    rows = xt.rows(ckpt / "rope", "tasks")
    assert set(rows["task"]) == {"hellaswag", "arc_easy", "extrapolate_needle"}
    assert (tmp_path / "report-tasks/eval_tasks.parquet").exists()


FEW: dict[str, Any] = {"include_path": HELLASWAG, "device": "cpu", "trust_code": True, "length": LONG, "limit": 6}


class TestEstimate:
    def test_the_tokens_are_those_that_the_questions_take(self, ckpt, copies) -> None:
        asked = FEW | {"data_dir": copies, "extend": "pi:factor=4"}
        found = xt.estimate_tasks(ckpt / "rope", "hellaswag", **asked)
        assert found.rows["extension"].tolist() == ["as-trained", "pi:factor=4"]
        assert (found.rows["targets"] == 6).all()
        read: list[int] = []
        lm = RunLM(Run.open(ckpt / "rope"), length=LONG, device="cpu", advance=lambda inputs, loss: read.append(inputs))
        benchmarks.Tasks.load(["hellaswag"], HELLASWAG, copies).questions(lm, None, 6)
        assert (found.rows["tokens"] == sum(read)).all()
        assert not (ckpt / "rope/results").exists()

    def test_a_continuation_is_counted_to_its_end(self, ckpt) -> None:
        run, ask = (
            Run.open(ckpt / "rope"),
            Instance("generate_until", {}, ("w x y z", {"max_gen_toks": 5, "until": []}), 0),
        )
        lm = CountingLM(run, length=LONG, device="cpu")
        assert lm.generate_until([ask]) == [""]
        context = len(lm.tok_encode("w x y z"))
        assert lm.read == {(context, 1): context, (1, 1): 4}  # the context gives the first token
