"""The sentences at the top of a report, from rows made by hand in which the truth is known."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports.answer import Answer, answer
from extrapolate.reports.gather import Evaluated
from extrapolate.reports.material import Material
from extrapolate.reports.sections.answer import explained

FACTORS = (1, 2, 4)
Curve = Mapping[int, float]  # the loss above that of a context cut back to L, by factor

TRAINING = dict.fromkeys(
    ("preset", "trained_length", "tokens", "parameters", "training_precision", "training_machine", "origin", "imported")
)


def answered(
    models: Mapping[str, Curve], *, seeds: int = 3, documents: int = 40, protocol: str = "fixed-target",
    noise: float = 0.02, base: Mapping[str, float] | None = None, trained_alike: bool = True, spread: float = 0.0,
) -> Answer:  # fmt: skip
    """The answer on models in this order; `A + B` is A with an extension, and has A's seeds.

    base: a model's loss within L, 4 if it is not named. spread: the deviation over seeds of losses above the control.
    """
    rng = np.random.default_rng(0)
    of_seeds = {model: rng.normal(0, spread, seeds) for model in models if " + " not in model}
    rows, found = [], []
    for model, curve in models.items():
        plain, _, extension = model.partition(" + ")
        within = (base or {}).get(plain, 4.0)
        for seed in range(seeds):
            for factor, above in curve.items():
                shared = {
                    "protocol": protocol, "factor": float(factor), "targets_hash": "t", "model": model, "seed": seed,
                    "run": f"{plain}-{seed}", "control_loss": within, "extension": extension or "as-trained",
                }  # fmt: skip
                loss = within + above + (of_seeds[plain][seed] if above > 0 else 0.0)
                rows.append(shared | TRAINING | {"loss": loss, "setting_hash": "s" if trained_alike else model})
                if np.isnan(loss):
                    continue
                for document in range(documents):
                    drawn = loss + (rng.normal(0, noise) if factor > 1 else 0.0)
                    found.append(
                        shared | {"document": str(document), "block": 0, "n_targets": 100, "loss": drawn}
                        | {"optimum_loss": None}
                    )  # fmt: skip
    return answer(
        Material(
            evaluated=Evaluated({}, ()), rows={protocol: pd.DataFrame(rows)},
            losses={protocol: pd.DataFrame({"Model": list(models)})}, documents=pd.DataFrame(found), compared=(),
            probes=pd.DataFrame(), styles={},
        )
    )  # fmt: skip


FAILS, HOLDS, GAINS = {1: 0.0, 2: 0.1, 4: 0.5}, {1: 0.0, 2: 0.0, 4: 0.0}, {1: 0.0, 2: -0.1, 4: -0.2}


def test_a_clear_order() -> None:
    found = answered({"RoPE": FAILS, "ExPE": GAINS})
    assert re.fullmatch(
        r"ExPE is better than RoPE by 0\.70 nats \(0\.6\d to 0\.\d\d\) at 4x and by 0\.20 \(0\.\d\d to 0\.\d\d\) at 2x"
        r"\. With the longer context, ExPE gets better; RoPE gets worse\.",
        found.text,
    )
    assert (found.protocol, found.family.reference, found.one_run) == ("fixed-target", "RoPE", False)
    assert found.family.shares == (0.025, 0.0)
    said = explained(found)
    assert "Intervals are over 40 documents, and 3 seeds. Student's t" in said
    assert "has 2 degrees of freedom." in said
    assert "other seeds" not in explained(found)


def test_what_is_worse_at_the_longest_length() -> None:
    found = answered({"RoPE": {1: 0.0, 2: 0.2, 4: 0.3}, "ExPE": {1: 0.0, 2: 0.0, 4: 0.6}})
    assert found.text.startswith("ExPE is worse than RoPE by 0.30 nats (0.2")
    assert found.text.endswith(") at 4x. With the longer context, both models get worse.")


def test_what_is_undecided_is_not_called_equivalent() -> None:
    text = answered({"RoPE": FAILS, "ExPE": FAILS}, noise=0.3).text
    assert text.startswith("Whether ExPE is better or worse than RoPE at 4x is undecided.")


def test_what_is_equivalent_is_not_called_undecided() -> None:
    text = answered({"RoPE": FAILS, "ExPE": FAILS}, noise=0.003).text
    assert text.startswith("ExPE and RoPE are equivalent at 4x: they differ by less than 0.01 nats.")
    of_three = answered({"RoPE": FAILS, "ExPE": FAILS, "FoX": {2: 0.0, 4: 0.5098}}, noise=0.003).text
    assert of_three.startswith("No model is shown to be better or worse than RoPE at 4x, and ExPE is equivalent to it.")


def test_a_gain_too_small_to_matter_stands_in_no_sentence() -> None:
    """Surely 0.003 nats better than the control and than another model, which 300 documents show."""
    slightly = {1: 0.0, 2: -0.003, 4: -0.003}
    text = answered({"RoPE": HOLDS, "FoX": slightly}, noise=0.005, documents=300).text
    assert "better" not in text
    assert text.startswith("FoX and RoPE are equivalent at 4x")
    alone = answered({"FoX": slightly}, noise=0.005, documents=300).text
    assert alone == "At 4x, FoX loses nothing."


def test_one_seed_is_said_to_be_one() -> None:
    found = answered({"RoPE": FAILS, "ExPE": GAINS}, seeds=1)
    assert found.text.startswith("In these runs, ExPE is better than RoPE by ")
    assert "nothing is known of other seeds" in explained(found)
    assert answered({"RoPE": FAILS, "ExPE": FAILS}, seeds=1, noise=0.3).text.startswith("In these runs, whether ExPE")
    assert answered({"ExPE": FAILS}, seeds=1).text == "In this run, at 4x, ExPE gets worse."


def test_a_model_that_only_survives() -> None:
    found = answered({"RoPE": FAILS, "ALiBi": HOLDS}, noise=0.01)
    assert found.text.endswith(". With the longer context, ALiBi loses nothing; RoPE gets worse.")
    unsure = answered({"ALiBi": {1: 0.0, 2: 0.0}}, noise=0.2, seeds=1)
    assert unsure.text.endswith("at 2x, it is undecided whether ALiBi loses anything.")


def test_a_control_that_beats_all() -> None:
    text = answered({"RoPE": FAILS, "ALiBi": FAILS, "NoPE": FAILS}, base={"ALiBi": 4.2, "NoPE": 4.3}).text
    assert text == (
        "No model is shown to be better than RoPE at 4x, and all others are worse. "
        "With the longer context, all 3 models get worse."
    )
    assert answered({"RoPE": FAILS, "ALiBi": FAILS}, base={"ALiBi": 4.2}).text.startswith(
        "ALiBi is worse than RoPE by 0.20 nats (0.1"
    )


def test_of_many_the_best_at_the_longest_length_at_which_one_is_better() -> None:
    text = answered({"RoPE": FAILS, "A": {2: 0.0, 4: 0.3}, "B": {2: 0.05, 4: 0.2}, "C": {2: 0.4, 4: 0.7}}).text
    assert text.startswith("B is better than RoPE by 0.30 nats (0.2")
    assert "; A is better too. With the longer context, " in text
    assert text.endswith("all 4 models get worse.")
    text = answered({"RoPE": FAILS, "A": GAINS, "B": GAINS, "C": FAILS}).text
    assert "context, A and B get better; RoPE gets worse; C is undecided." in text
    few = answered({"RoPE": FAILS, "A": FAILS, "B": FAILS}, base={"A": 4.2}).text
    assert few.startswith("No model is shown to be better than RoPE at 4x, and A is worse.")


def test_choosing_among_many_that_are_alike_claims_nothing() -> None:
    """The largest of sixty differences by chance alone, which single intervals would order."""
    models = {str(at): {2: 0.0, 4: 0.0} for at in range(30)}
    text = answered(models, seeds=1, noise=0.2).text
    assert text.startswith("In these runs, no model is shown to be better or worse than 0 at 4x. ")


MANY = {
    "RoPE": {2: 0.34, 4: 0.55, 16: 0.85}, "p-RoPE": {2: 0.27, 4: 0.50, 16: 0.85}, "ALiBi": {2: 0.0, 4: 0.0, 16: 0.0},
    "ExPE": {2: 0.01, 4: 0.07, 16: 0.52}, "ExQPE": {2: 0.01, 4: 0.07, 16: 0.46}, "FoX": {2: 0.0, 4: 0.0, 16: 0.0},
    "NoPE": {2: 0.13, 4: 0.32, 16: 0.83},
}  # fmt: skip


def test_of_many_models_three_seeds_tell_what_is_far_apart() -> None:
    """Sixteen models with extensions, as far apart as on books; seeds as far as 0.03 nats."""
    pi = {f"{model} + {name}": MANY[model] for model in MANY for name in ("PI", "YaRN") if model in ("RoPE", "ALiBi")}
    found = answered(MANY | pi, base={"FoX": 3.99}, spread=0.03, noise=0.003)
    assert found.text.startswith("FoX is better than RoPE by 0.8")
    assert ") at 4x; ALiBi, ExPE and ExQPE are better too; no extension is shown to help." in found.text
    assert "With the longer context, ALiBi and FoX lose nothing; RoPE, ExPE and ExQPE get worse;" in found.text
    assert found.family.shares == pytest.approx((0.04 / 7, 0.01 / 4))
    assert "Each model as it was trained is compared with RoPE at 16x, then with its control there" in explained(found)
    assert "its error rate is 0.57%. Each of 4 models with an extension" in explained(found)


def test_of_many_models_that_are_alike_three_seeds_tell_no_order() -> None:
    found = answered({model: {2: 0.1, 4: 0.1, 16: 0.1} for model in MANY}, spread=0.07)
    assert found.text.startswith("No model is shown to be better or worse than RoPE at 16x. ")


def test_a_shorter_length_is_looked_at_only_where_the_longer_one_tells_something() -> None:
    found = answered({"RoPE": FAILS, "A": {2: -0.5, 4: 0.5}, "B": {2: -0.5, 4: 0.0}}, noise=0.005)
    lengths = {model: [one.factor for one in mine] for model, mine in found.family.orders.items()}
    assert lengths == {"A": [4], "B": [4, 2]}
    assert {model: len(mine) for model, mine in found.family.controls.items()} == {"RoPE": 2, "B": 2}


def test_an_extension_that_helps_and_one_that_harms() -> None:
    plain, helps, harms = {2: 0.1, 4: 0.5}, {2: 0.0, 4: 0.1}, {2: 0.3, 4: 0.7}
    alone = answered({"RoPE": plain, "RoPE + PI": helps, "RoPE + YaRN": harms})
    assert alone.text.startswith("RoPE + PI is better than RoPE by 0.40 nats (0.3")
    assert alone.text.endswith(") at 4x. With the longer context, RoPE gets worse.")
    assert alone.family.shares == pytest.approx((0.01, 0.02))
    assert "The model as it was trained is compared with its control" in explained(alone)
    one = answered({"RoPE": plain, "ALiBi": plain, "RoPE + PI": helps}, base={"ALiBi": 4.3}).text
    assert "; RoPE + PI is better than RoPE by 0.40 nats (0.3" in one
    worse = answered({"RoPE": plain, "RoPE + YaRN": harms}).text
    assert worse.startswith("No extension is shown to help at 4x, and RoPE + YaRN is worse than without. With")


def test_the_papers_protocol_blames_no_loss_on_length() -> None:
    """Its windows begin without context, which the control has."""
    found = answered({"RoPE": FAILS, "ALiBi": {1: 0.0, 2: 0.3, 4: 0.0}}, protocol="windows", noise=0.01)
    assert "With the longer context, ALiBi loses nothing; RoPE is undecided." in found.text
    assert "isolates length" in explained(found)


def test_what_was_evaluated_at_1x_alone() -> None:
    same = {1: 0.0}
    found = answered({"RoPE": same, "ALiBi": same}, base={"ALiBi": 4.2})
    assert found.text.endswith(" at 1x. No length beyond L was evaluated.")
    assert "Each model is compared with RoPE at 1x; its error rate is 5.00%." in explained(found)
    assert "Nothing was compared." in explained(answered({"RoPE": same}))
    ends = answered({"learned": {1: 0.0, 2: np.nan}, "sinusoidal": {1: 0.0, 2: np.nan}})
    assert ends.text.endswith("No model reaches a length beyond L.")


@pytest.mark.parametrize("reaches", [0.1, -0.1])
def test_a_model_that_ends_at_l_is_not_compared_beyond(reaches: float) -> None:
    text = answered({"learned": {1: 0.0, 2: np.nan}, "RoPE": {1: 0.0, 2: reaches}}).text
    assert text.startswith("No model is compared with learned: they do not reach one length together.")
    assert "learned does not reach 2x." in text


def test_a_diverged_model() -> None:
    text = answered({"RoPE": {1: 0.0, 2: np.inf}, "ALiBi": {1: 0.0, 2: 0.0}}, seeds=1).text
    assert text.startswith("In these runs, ALiBi is better than RoPE by an infinite loss at 2x.")


def test_too_few_documents_tell_nothing() -> None:
    assert answered({"RoPE": FAILS, "ALiBi": HOLDS}, documents=5).text == (
        "There are too few documents to tell models apart."
    )
    assert answered({"RoPE": FAILS}, documents=5).text == "There are too few documents to tell."


def test_models_that_were_not_trained_alike() -> None:
    both = answered({"RoPE": FAILS, "ALiBi": HOLDS}, trained_alike=False)
    assert "; they were not trained alike. With" in both.text
    assert "trained alike" not in answered({"RoPE": FAILS, "ALiBi": HOLDS}).text


def test_a_report_begins_with_it(cli, evaluated: Path, without_pictures: None, tmp_path: Path) -> None:
    ended = cli("report", evaluated).succeeded()
    title, sentences, rest, *_ = (tmp_path / "report/report.md").read_text().split("\n\n")
    assert title == "# The answer"
    assert sentences.startswith("**In these runs, ")
    assert rest.startswith("Protocol fixed-target.")
    assert " ".join(ended.out.split()).startswith(sentences.strip("*").split("(")[0].strip())
