"""The sentences at the top of a report, from rows made by hand in which the truth is known."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd
import pytest

from extrapolate.reports.report_data import ReportData
from extrapolate.reports.sections.answer import Answer, answer, explained
from extrapolate.results.groups import SETTINGS

Curve = Mapping[int, float]  # the loss above that of a context cut back to L, by factor

TRAINING = dict.fromkeys(
    ("preset", "training_corpus", "trained_length", "tokens", "parameters", "training_precision", "training_machine",
     "origin", "imported", *(one.name for one in SETTINGS.columns))
)  # fmt: skip


def answered(
    models: Mapping[str, Curve], *, seeds: int = 3, documents: int = 40, protocol: str = "fixed-target",
    noise: float = 0.02, base: Mapping[str, float] | None = None, trained_alike: bool = True, spread: float = 0.0,
    origin: str | None = None,
) -> Answer:  # fmt: skip
    """The answer on models in this order; `A + B` is A with an extension, and has A's seeds.

    origin: the run that all continue. base: a model's loss within L, 4 if it is not named. spread: the deviation over
    seeds of losses above the control.
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
                rows.append(
                    shared | TRAINING
                    | {"loss": loss, "setting_hash": "s" if trained_alike else model}
                    | {"origin": origin, "origin_sha256": origin, "weights_sha256": f"{plain}-{seed}"}
                )  # fmt: skip
                if np.isnan(loss):
                    continue
                for document in range(documents):
                    drawn = loss + (rng.normal(0, noise) if factor > 1 else 0.0)
                    found.append(
                        shared | {"document": str(document), "block": 0, "n_targets": 100, "loss": drawn}
                        | {"optimum_loss": None}
                    )  # fmt: skip
    losses = pd.DataFrame({"Model": list(models)})
    return answer(
        ReportData(rows={protocol: pd.DataFrame(rows)}, losses={protocol: losses}, documents=pd.DataFrame(found))
    )


FAILS, HOLDS, GAINS = {1: 0.0, 2: 0.1, 4: 0.5}, {1: 0.0, 2: 0.0, 4: 0.0}, {1: 0.0, 2: -0.1, 4: -0.2}
SLIGHTLY, ENDS = {1: 0.0, 2: -0.003, 4: -0.003}, {1: 0.0, 2: np.nan}
ALIKE, HELPED, HARMED = {"RoPE": FAILS, "ExPE": FAILS}, {2: 0.0, 4: 0.1}, {2: 0.3, 4: 0.7}
MANY = {
    "RoPE": {2: 0.34, 4: 0.55, 16: 0.85}, "p-RoPE": {2: 0.27, 4: 0.50, 16: 0.85}, "ALiBi": {2: 0.0, 4: 0.0, 16: 0.0},
    "ExPE": {2: 0.01, 4: 0.07, 16: 0.52}, "ExQPE": {2: 0.01, 4: 0.07, 16: 0.46}, "FoX": {2: 0.0, 4: 0.0, 16: 0.0},
    "NoPE": {2: 0.13, 4: 0.32, 16: 0.83},
}  # fmt: skip


FEW = "There are too few documents to tell"


@pytest.mark.parametrize(
    ("models", "given", "said"),
    [
        ({"RoPE": {1: 0.0, 2: 0.2, 4: 0.3}, "ExPE": {1: 0.0, 2: 0.0, 4: 0.6}}, {},
         "ExPE is worse than RoPE by 0.30 nats (0.2*) at 4x. With the longer context, both models get worse."),
        # What is undecided is not called equivalent, and the other way round.
        (ALIKE, {"noise": 0.3}, "Whether ExPE is better or worse than RoPE at 4x is undecided. *"),
        (ALIKE, {"noise": 0.003}, "ExPE and RoPE are equivalent at 4x: they differ by less than 0.01 nats. *"),
        (ALIKE | {"FoX": {2: 0.0, 4: 0.5098}}, {"noise": 0.003},
         "No model is shown to be better or worse than RoPE at 4x, and ExPE is equivalent to it. *"),
        # Surely 0.003 nats better than the control and than another model, which is too little to matter.
        ({"RoPE": HOLDS, "FoX": SLIGHTLY}, {"noise": 0.005, "documents": 300},
         "FoX and RoPE are equivalent at 4x: *. With the longer context, both models lose less than 0.01 nats."),
        # One seed is said to be one.
        ({"RoPE": FAILS, "ExPE": GAINS}, {"seeds": 1}, "In these runs, ExPE is better than RoPE by *"),
        ({"ExPE": FAILS}, {"seeds": 1}, "In this run, at 4x, ExPE gets worse."),
        ({"RoPE": FAILS, "ALiBi": HOLDS}, {"noise": 0.01},
         "*. With the longer context, ALiBi loses less than 0.01 nats; RoPE gets worse."),
        (ALIKE | {"NoPE": FAILS}, {"base": {"ExPE": 4.2, "NoPE": 4.3}},
         "No model is shown to be better than RoPE at 4x, and all others are worse. With the longer context, all 3 "
         "models get worse."),
        (ALIKE | {"B": FAILS}, {"base": {"ExPE": 4.2}},
         "No model is shown to be better than RoPE at 4x, and ExPE is worse. *"),
        # Of many the best at the longest length at which one is better.
        ({"RoPE": FAILS, "A": {2: 0.0, 4: 0.3}, "B": {2: 0.05, 4: 0.2}, "C": {2: 0.4, 4: 0.7}}, {},
         "B is better than RoPE by 0.30 nats (0.2*; A is better too; C is worse. With the longer context, "
         "all 4 models get worse."),
        # The largest of sixty differences by chance alone, which single intervals would order.
        ({str(at): {2: 0.0, 4: 0.0} for at in range(30)}, {"seeds": 1, "noise": 0.2},
         "In these runs, no model is shown to be better or worse than 0 at 4x. *"),
        ({model: {2: 0.1, 4: 0.1, 16: 0.1} for model in MANY}, {"spread": 0.07},
         "No model is shown to be better or worse than RoPE at 16x. *"),
        ({"RoPE": FAILS, "ALiBi": FAILS, "RoPE + PI": HELPED}, {"base": {"ALiBi": 4.3}},
         "*; RoPE + PI is better than RoPE by 0.40 nats (0.3*"),
        ({"RoPE": FAILS, "RoPE + YaRN": HARMED}, {},
         "No extension is shown to help at 4x, and RoPE + YaRN is worse than without. With*"),
        *(({"learned": ENDS, "RoPE": {1: 0.0, 2: reaches}}, {},
           "No model is compared with learned: they do not reach one length together. *learned has no loss at 2x.")
          for reaches in (0.1, -0.1)),
        ({"RoPE": {1: 0.0, 2: np.inf}, "ALiBi": {1: 0.0, 2: 0.0}}, {"seeds": 1},
         "In these runs, ALiBi is better than RoPE by an infinite loss at 2x. *"),
        ({"RoPE": FAILS, "ALiBi": HOLDS}, {"documents": 5}, f"{FEW} models apart."),
        ({"RoPE": FAILS, "ALiBi": HOLDS}, {"trained_alike": False}, "*; they were not trained alike. With*"),
        ({"RoPE": FAILS, "ALiBi": HOLDS}, {"origin": "one"}, "*; several seeds continue one run. With*"),
    ],
)  # fmt: skip
def test_the_sentences(models: Mapping[str, Curve], given: dict[str, Any], said: str) -> None:
    text = answered(models, **given).text
    assert fnmatchcase(text, said), text
    assert ("trained alike" in text) == (given.get("trained_alike") is False)


def test_a_clear_order() -> None:
    found = answered({"RoPE": FAILS, "ExPE": GAINS})
    assert re.fullmatch(
        r"ExPE is better than RoPE by 0\.70 nats \(0\.6\d to 0\.\d\d\) at 4x"
        r"\. With the longer context, ExPE gets better; RoPE gets worse\.",
        found.text,
    )
    assert (found.protocol, found.family.reference, found.of_runs) == ("fixed-target", "RoPE", False)
    said = explained(found)
    assert "at 4x were fixed before any loss was seen: every model with RoPE, every model with its control. Of" in said
    assert "Intervals are over 40 documents, and 3 seeds. Student's t" in said
    assert "has 2 degrees of freedom." in said
    assert "other seeds" not in explained(found)


def test_what_is_told_is_what_p_values_tell_at_a_false_discovery_rate() -> None:
    """Benjamini and Hochberg's step up over the p values of single comparisons, with one interval for all that tell."""
    steps = {f"{at:02}": {4: 0.012 + 0.006 * at} for at in range(20)}
    for seeds, spread in ((3, 0.003), (1, 0.0)):
        found = answered({"RoPE": {4: 0.0}, **steps}, seeds=seeds, spread=spread, noise=0.1).family.orders
        p = np.array([one.estimate.p() for one in found])
        below = np.sort(p) <= 0.05 * np.arange(1, 21) / 20
        told = int(below.nonzero()[0].max()) + 1
        assert 3 < told < 20
        assert [one.sure() for one in found] == (p <= np.sort(p)[told - 1]).tolist()
        assert [one.confidence for one in found] == pytest.approx([1 - 0.05 * told / 20] * 20)


def test_an_interval_in_parentheses_holds_for_all_models_at_once() -> None:
    """The largest of many differences is larger than it should be; seeds that differ much leave no such interval."""
    models = {"RoPE": {4: 0.5}} | {f"{at:02}": {4: 0.2} for at in range(20)}
    (size, low, high) = re.findall(r"\d\.\d+", answered(models, noise=0.1, seeds=1).text)[:3]
    orders = answered(models, noise=0.1, seeds=1).family.orders
    best = min(orders, key=lambda one: one.difference.mean)
    wide = best.estimate.interval(1 - 0.05 / 20)
    assert (size, low, high) == tuple(f"{-end:.2f}" for end in (wide.mean, wide.high, wide.low))
    assert best.difference.high < wide.high
    several = answered(models, spread=0.03)
    (size, low, high) = re.findall(r"0\.\d+", several.text)[:3]
    assert "2 degrees of freedom. In comparisons with RoPE it has 0.79 more, because each" in explained(several)
    assert 0 < float(low) < 0.3 < float(high)  # three seeds do, for the variance of all models is known from twenty
    text = answered(models, spread=0.08).text
    assert re.match(r"\d\d is better than RoPE by 0\.\d+ nats at 4x; \d\d, \d\d and \d+ others are better too", text), (
        text
    )


def test_two_seeds_say_nothing_of_others() -> None:
    """Whatever they differ by: Student's t has one degree of freedom, so intervals are over documents alone."""
    two = answered({"RoPE": FAILS, "ALiBi": HOLDS}, seeds=2, spread=0.1, noise=0.01)
    assert re.match(r"In these runs, ALiBi is better than RoPE by 0\.\d+ nats \(", two.text)
    assert "Intervals are over 40 documents. With fewer than 3 seeds, this is about these runs" in explained(two)
    assert two.freedom == []
    assert answered({"RoPE": FAILS}, seeds=2).text == "In these runs, at 4x, RoPE gets worse."


def test_the_papers_protocol_blames_on_length_only_what_is_worse_than_at_1x() -> None:
    """Its windows begin without context, which the control has, and at 1x they begin most often."""
    curves = {"RoPE": FAILS, "ALiBi": {1: 0.02, 2: 0.3, 4: 0.0}, "NoPE": {1: 0.05, 2: 0.03, 4: 0.05}}
    found = answered(curves, protocol="windows", noise=0.01)
    said = "With the longer context, ALiBi loses less than 0.01 nats; RoPE gets worse; for NoPE this is undecided."
    assert said in found.text
    assert "isolates length" in explained(found)
    without = {name: {4: curve[4]} for name, curve in curves.items()}  # nothing says how much is due to the beginning
    assert "0.01 nats; for RoPE and NoPE this is undecided." in answered(without, protocol="windows", noise=0.01).text
