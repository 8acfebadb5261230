"""The questions of a study's file: which runs they mean, and what is refused before anything is trained."""

from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.studies.cells import cells_of
from extrapolate.studies.questions import question_rows
from extrapolate.studies.resolved import resolve_cells
from extrapolate.studies.study import read_study

STUDY = """
[base]
data = "{store}"
seq_len = 16
tokens = 1024
batch_tokens = 512
width = 32
layers = 1
precision = "fp32"
compile = false
[axes]
encoding = ["rope:theta=500", "alibi"]
seed = [0, 1]
[evaluate]
factors = [1, 4]
extend = ["yarn:factor=4"]
protocols = ["fixed-target"]
max_targets = 512
"""
QUESTION = """
[[question]]
a = "alibi"
b = "rope:theta=500 + yarn:factor=4"
at = 4
"""


def rows(store: Path, tmp_path: Path, text: str) -> list[dict[str, object]]:
    file = tmp_path / "study.toml"
    file.write_text(text.format(store=store))
    read = read_study(file)
    stores: dict[str | None, Store] = {str(store): Store.open(store)}
    return list(question_rows(read, resolve_cells(read, cells_of(read), stores, tmp_path / "runs")))


@pytest.mark.parametrize(
    "b", ["rope:theta=500 + yarn:factor=4", "RoPE(theta=500) + YaRN(4)", "rope-theta-500 + yarn:factor=4"]
)
def test_a_side_is_a_spec_a_name_of_tables_or_that_of_cells(store: Path, tmp_path: Path, b: str) -> None:
    found = rows(store, tmp_path, STUDY + QUESTION.replace("rope:theta=500 + yarn:factor=4", b))
    assert [(row["side"], row["run"], row["extension"]) for row in found] == [
        ("a", "alibi-s0", "as-trained"), ("a", "alibi-s1", "as-trained"),
        ("b", "rope-theta-500-s0", "yarn:factor=4"), ("b", "rope-theta-500-s1", "yarn:factor=4"),
    ]  # fmt: skip
    assert {(row["question"], row["factor"], row["a"], row["b"]) for row in found} == {(0, 4.0, "alibi", b)}


@pytest.mark.parametrize("name", ["alibi+long", "ALiBi, tuned at 32"])
def test_a_model_that_is_continued_has_names_of_its_own(store: Path, tmp_path: Path, name: str) -> None:
    tuned = '[[fine_tune]]\nname = "long"\nof = {{encoding = "alibi"}}\nseq_len = 32\ntokens = 512\n'
    found = rows(store, tmp_path, f'{STUDY}{tuned}[[question]]\na = "alibi"\nb = "{name}"\nat = 4\n')
    assert [row["run"] for row in found] == ["alibi-s0", "alibi-s1", "alibi-s0+long", "alibi-s1+long"]


def test_models_of_several_lengths_are_asked_about_in_each_report(store: Path, tmp_path: Path) -> None:
    text = STUDY.replace("seq_len = 16\n", "").replace("[axes]", "[axes]\nseq_len = [16, 32]")
    found = rows(store, tmp_path, text + QUESTION)
    assert [row["run"] for row in found if row["side"] == "a"] == [
        f"alibi-L{length}-s{seed}" for length in (16, 32) for seed in (0, 1)
    ]
    with pytest.raises(UserError, match="line 20: a and b differ in their training length or their text"):
        rows(store, tmp_path, f'{text}\n[[question]]\na = "alibi-L16"\nb = "alibi-L32"\nat = 4\n')


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at = 4", "at = 8", "line 23: at = 8 is not evaluated; factors are 1, 4"),
        ("at = 4", 'at = "4"', "line 20: a question has two models and a factor: a = 'alibi'"),
        ("at = 4", "", "line 20: a question has two models and a factor"),
        ("at = 4", "at = 4\nfrom = 1", "line 24: unknown setting 'from'"),
        ('a = "alibi"', 'a = "alibo"', "line 21: no model of the study is called 'alibo'; did you mean 'alibi'?"),
        ('a = "alibi"', 'a = "alibi + pi"', "line 21: alibi is not evaluated with the extension 'pi': name it under"),
        ('a = "alibi"', 'a = "rope:theta=500 + yarn:factor=4"', "line 22: a and b are one model"),
        ("[[question]]", "[question]", "line 20: there may be several of 'question': write [[question]]"),
        (
            "[axes]",
            "[axes]\nwidth = [32, 64]",
            "line 22: 'alibi' is several models; name one of alibi-width32, alibi-width64",
        ),
    ],
)
def test_what_is_refused_has_its_line(store: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    text = STUDY + QUESTION
    if "width" in new:
        text = text.replace("width = 32", "")
    assert old in text
    with pytest.raises(UserError) as raised:
        rows(store, tmp_path, text.replace(old, new))
    assert str(raised.value).startswith(f"{tmp_path / 'study.toml'}, {message}")


@pytest.mark.usefixtures("elsewhere", "without_pictures")
def test_the_report_begins_with_the_answer(cli, store: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "study.toml", tmp_path / "out"
    file.write_text((STUDY + QUESTION.replace("at = 4", "at = 5")).format(store=store))
    assert "line 23: at = 5 is not evaluated" in cli("sweep", file, "--dry-run").error()
    assert not out.exists()
    file.write_text((STUDY + QUESTION).format(store=store))
    (written,) = xt.sweep(file, out, engine="ray").reports.values()
    _, first, *_ = (out / "report/report.md").read_text().split("\n\n")
    name = "RoPE(theta=500) + YaRN(4)"
    begins = (f"ALiBi is better than {name} at 4x: ", f"ALiBi is worse than {name} at 4x: ", f"ALiBi and {name} are ")
    assert first.strip("*").startswith((*begins, f"Whether ALiBi is better or worse than {name} at 4x is undecided: "))
    assert " nats over 2 seeds and " in first
    assert "What the study asks has 5 % of its own" in (out / "report/report.md").read_text()
    assert written.answer.startswith(first.strip("*")[:20])
    again = xt.report(out / "runs", tmp_path / "again")
    assert again.answer == written.answer
