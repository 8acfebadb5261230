"""The questions of a study's file: which runs they mean, and what is refused before anything is trained."""

import re
from pathlib import Path

import pytest

import extrapolate as xt
from extrapolate.errors import UserError
from extrapolate.studies.questions import question_rows

# Lines 13 to 20.
STUDY = """\
extend = ["yarn:factor=4"]
[axes]
encoding = ["rope:theta=500", "alibi"]
seed = [0, 1]
[[question]]
a = "alibi"
b = "rope:theta=500 + yarn:factor=4"
at = 4
"""


@pytest.fixture
def study(small):
    """Writes the study with this changed."""
    return lambda text: small(text, factors="[1, 4]", protocols='["fixed-target"]')


@pytest.fixture
def rows(study, resolved):
    """The rows of a study's questions."""
    return lambda text: list(question_rows(*resolved(study(text))))


@pytest.mark.parametrize(
    "b", ["rope:theta=500 + yarn:factor=4", "RoPE(theta=500) + YaRN(4)", "rope-theta-500 + yarn:factor=4"]
)
def test_a_side_is_a_spec_a_name_of_tables_or_that_of_cells(rows, b: str) -> None:
    found = rows(STUDY.replace("rope:theta=500 + yarn:factor=4", b))
    assert [(row["side"], row["run"], row["extension"]) for row in found] == [
        ("a", "alibi-s0", "as-trained"), ("a", "alibi-s1", "as-trained"),
        ("b", "rope-theta-500-s0", "yarn:factor=4"), ("b", "rope-theta-500-s1", "yarn:factor=4"),
    ]  # fmt: skip
    assert {(row["question"], row["factor"], row["a"], row["b"]) for row in found} == {(0, 4.0, "alibi", b)}


def test_a_side_is_a_label(rows) -> None:
    labelled = '[[cell]]\nencoding = "rope:theta=500"\nlayers = 3\nlabel = "full"\n'
    tuned = '[[fine_tune]]\nname = "long"\nof = {label = "full"}\nseq_len = 32\n'
    question = STUDY.replace("rope:theta=500 + yarn:factor=4", "full, tuned at 32")
    found = rows(question.replace('"alibi"\nb', '"full + yarn:factor=4"\nb') + labelled + tuned)
    one = "rope-theta-500-layers3-s"
    assert [row["run"] for row in found] == [f"{one}0", f"{one}1", f"{one}0+long", f"{one}1+long"]


@pytest.mark.parametrize("name", ["alibi+long", "ALiBi, tuned at 32"])
def test_a_model_that_is_continued_has_names_of_its_own(rows, name: str) -> None:
    tuned = '[[fine_tune]]\nname = "long"\nof = {encoding = "alibi"}\nseq_len = 32\n'
    found = rows(STUDY.replace("rope:theta=500 + yarn:factor=4", name) + tuned)
    assert [row["run"] for row in found] == ["alibi-s0", "alibi-s1", "alibi-s0+long", "alibi-s1+long"]


def test_models_of_several_lengths_are_asked_about_in_each_report(study, resolved) -> None:
    def found(question: str) -> list[dict[str, object]]:
        file = study(STUDY.replace("[axes]", "[axes]\nseq_len = [16, 32]") + question)
        file.write_text(file.read_text().replace("seq_len = 16\n", "\n"))
        return list(question_rows(*resolved(file)))

    assert [row["run"] for row in found("") if row["side"] == "a"] == [
        f"alibi-L{length}-s{seed}" for length in (16, 32) for seed in (0, 1)
    ]
    with pytest.raises(UserError, match="line 22: a and b differ in their training length or their text"):
        found('[[question]]\na = "alibi-L16"\nb = "alibi-L32"\nat = 4\n')


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at = 4", "at = 8", "line 20: at = 8 is not evaluated; factors are 1, 4"),
        (
            'a = "alibi"',
            'a = "alibo"',
            "line 18: no model of the study is called 'alibo' (did you mean 'alibi'?); there are alibi, "
            "rope-theta-500, rope-theta-500 + yarn:factor=4",
        ),
        ('a = "alibi"', 'a = "alibi + pi"', "line 18: alibi is not evaluated with the extension 'pi': name it under"),
        ('a = "alibi"', 'a = "rope:theta=500 + yarn:factor=4"', "line 19: a and b are one model"),
        (
            "[axes]",
            "[axes]\nwidth = [32, 64]",
            "line 19: 'alibi' is several models; name one of alibi-width32, alibi-width64",
        ),
    ],
)
def test_what_is_refused_has_its_line(rows, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in STUDY
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'study.toml'}, {message}")):
        rows(STUDY.replace(old, new))


@pytest.mark.usefixtures("elsewhere")
def test_the_report_begins_with_the_answer(cli, study) -> None:
    assert (
        "line 20: at = 5 is not evaluated"
        in cli("sweep", study(STUDY.replace("at = 4", "at = 5")), "--dry-run").error()
    )
    (written,) = xt.sweep(study(STUDY), "out", engine="ray").reports.values()
    page = Path("out/report/report.md").read_text()
    first = page.split("\n\n")[1].strip("*")
    name = "RoPE(theta=500) + YaRN(4)"
    begins = (f"ALiBi is better than {name} at 4x: ", f"ALiBi is worse than {name} at 4x: ", f"ALiBi and {name} are ")
    assert first.startswith((*begins, f"Whether ALiBi is better or worse than {name} at 4x is undecided: "))
    assert " nats over 2 seeds and " in first
    assert "The answers to the study's questions have an error rate of 5 % of their own" in page
    assert written.answer.startswith(first[:20])
    assert xt.report("out/runs", "again").answer == written.answer


@pytest.mark.usefixtures("elsewhere")
def test_an_edited_study_is_answered_like_a_new_one(small) -> None:
    """Rows of what it asked for earlier stay in the runs, but are no part of its report."""
    study = STUDY.replace("[0, 1]", "[0]")
    xt.sweep(small(study, factors="[1, 4]", protocols='["fixed-target"]'), "out", engine="ray")
    edited = study.replace(" + yarn:factor=4", "").replace("at = 4", "at = 2")
    edited = edited.replace('extend = ["yarn:factor=4"]\n', "")
    file = small(edited, factors="[1, 2]", protocols='["windows"]')
    ((page, after),) = xt.sweep(file, "out", engine="ray").reports.items()
    assert "ALiBi" in after.answer
    assert " at 2x" in after.answer
    assert set(after.tables) == {"windows"}
    said = "left out, for the study does not ask for it: protocol fixed-target"
    assert said in after.warnings
    assert said.removeprefix("left out, ") in (page / "report.md").read_text()
    assert set(xt.report("out/runs", "all").tables) == {"windows", "fixed-target"}
