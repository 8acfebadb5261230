"""An evaluation's rows: the control, what is shared and what is n/a; what is refused; what its progress says."""

import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.store import Store
from extrapolate.data.synthetic.base import parse_process
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.evaluation import lengths, probes
from extrapolate.evaluation import work as working
from extrapolate.evaluation.lengths import checked, evaluate, models
from extrapolate.evaluation.losses import target_losses
from extrapolate.evaluation.optimum import optimal_losses
from extrapolate.evaluation.protocols.base import CONTROL, protocols, targets_hash
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import Targets
from extrapolate.evaluation.window_losses import measure
from extrapolate.evaluation.work import work_of
from extrapolate.model.attention import ResolvedPlan
from extrapolate.model.model import Model
from extrapolate.results import EVAL_DOCUMENTS, EVALS, kept, read
from extrapolate.runs.run import Run

L = 16
MARKOV = "markov:states=4,concentration=0.3,documents=120,length=70"


@pytest.fixture(scope="module")
def store(word_store: Store) -> Store:
    return word_store


@pytest.fixture
def run_of(store: Store, random_run: Callable[..., Run]) -> Callable[..., Run]:
    """A run of an encoding on the words."""
    return lambda pe, **options: random_run(store, pe, **options)


@pytest.fixture(scope="module")
def markov(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("synthetic") / "markov"
    return build_store(parse_process(MARKOV), StoreSettings(source=f"synthetic:{MARKOV}"), folder)


@pytest.fixture
def short(markov: Store, random_run: Callable[..., Run]) -> Run:
    """A run of L = 8 on that text."""
    return random_run(markov, seq_len=8)


def settings_of(**more: Any) -> EvaluationSettings:
    return EvaluationSettings(**{"factors": (1, 4), "max_targets": 256} | more)


def rows_of(run: Run, store: Store, settings: EvaluationSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    pieces = list(evaluate(work_of(run, store, settings)))
    return tuple(pd.DataFrame([row for piece in pieces for row in piece[i]]) for i in (0, 1))


def test_the_control_of_fixed_target_is_the_plain_row_at_1x(store: Store, run_of) -> None:
    settings = EvaluationSettings(factors=(1, 2, 4), extend=("pi", "pi:factor=2"), max_targets=128)
    rows, _ = rows_of(run_of("rope"), store, settings)
    fixed = rows[rows["protocol"] == "fixed-target"]
    plain = fixed[(fixed["extension"] == "as-trained") & (fixed["factor"] == 1)]["loss"].item()
    assert set(fixed["control_loss"]) == {plain}
    assert fixed[(fixed["extension"] == "pi") & (fixed["factor"] == 1)]["loss"].item() == plain
    assert fixed[(fixed["extension"] == "pi:factor=2") & (fixed["factor"] == 1)]["loss"].item() != plain
    assert set(rows["model"]) == {"RoPE", "RoPE + PI", "RoPE + PI(2)"}
    assert rows.groupby("protocol")["targets_hash"].nunique().tolist() == [1, 1]


@pytest.mark.parametrize(("pe", "shares"), [("rope", True), ("random:max=128", False)])
def test_windows_are_shared_where_the_model_allows_it(store: Store, run_of, monkeypatch, pe: str, shares: bool) -> None:
    asked = []

    def noted(*arguments, share, **options):
        asked.append(share)
        return measure(*arguments, share=share, **options)

    monkeypatch.setattr(lengths, "measure", noted)
    run = run_of(pe)
    settings = EvaluationSettings(factors=(1, 2, 4), protocols=("windows",), max_targets=256)
    rows, _ = rows_of(run, store, settings)
    assert asked == [shares]
    model, split = run.load_model(run.checkpoints("last")[0]), store.split("test")
    for length, groups in settings.layout("windows", split, L).rows.items():
        alone = np.concatenate([target_losses(model, split, group).ravel() for group in groups])
        assert rows.loc[rows["length"] == length, "loss"].item() == pytest.approx(alone.mean(), rel=1e-6)


def test_a_precision_reaches_what_the_encoding_stores(store: Store, run_of, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, asked = Model.resolve, []

    def noted(model: Model, plan: Plan, storage: str = "fp32") -> ResolvedPlan:
        asked.append(storage)
        return setting(model, plan, storage)

    monkeypatch.setattr(Model, "resolve", noted)
    settings = EvaluationSettings(factors=(1,), protocols=("windows",), max_targets=64, precisions=("fp32", "bf16"))
    rows_of(run_of("expe"), store, settings)
    assert asked == ["fp32", "bf16"]


def test_every_checkpoint_has_its_own_weights_and_tokens(store: Store, run_of) -> None:
    run = run_of("rope", fresh=True)
    model = run.build_model(drawn=True)
    run.save_weights(model, 8, 2048, final=False)
    kept, last = run.checkpoints("all")
    settings = EvaluationSettings((1,), protocols=("windows",), max_targets=64, checkpoint="all")
    rows, _ = rows_of(run, store, settings)
    assert rows[["step", "tokens"]].values.tolist() == [[8, 2048], [32, 8192]]
    assert rows["weights_sha256"].tolist() == [kept.sha256, last.sha256]
    split = store.split("test")
    (group,) = settings.layout("windows", split, L).rows[L]
    for checkpoint, loss in zip((kept, last), rows["loss"], strict=True):
        assert loss == pytest.approx(target_losses(run.load_model(checkpoint), split, group).mean(), rel=1e-6)


def test_what_was_dropped_in_training_is_there(store: Store, run_of) -> None:
    run = run_of("rope", dropout=0.5)
    settings = EvaluationSettings((1, 2), ("pi",), protocols=("windows",), max_targets=64)
    rows, again = (rows_of(run, store, settings)[0] for _ in range(2))
    assert rows["loss"].tolist() == again["loss"].tolist()
    plain, _ = rows_of(run_of("rope"), store, settings)  # the same weights
    assert rows["loss"].tolist() == plain["loss"].tolist()


def test_too_many_losses_are_refused(store: Store, run_of, monkeypatch) -> None:
    monkeypatch.setattr(working, "MOST_LOSSES", 2047)
    asked = EvaluationSettings((1, 4), ("pi",), protocols=("windows",), max_targets=1024)
    lengths.checked(run_of("rope"), store, asked)
    words = "would keep 2048 losses of each extension by windows, and 2047 is the most"
    with pytest.raises(UserError, match=words):
        lengths.checked(run_of("rope"), store, replace(asked, keep_losses=True))


def test_the_loss_of_every_target_is_kept_where_it_was_asked_for(store: Store, run_of) -> None:
    run = run_of("learned")
    model, split = run.load_model(run.checkpoints("last")[0]), store.split("test")
    settings = EvaluationSettings((0.5, 1, 2), protocols=("windows", "fixed-target"), max_targets=256)
    assert all(not len(targets) for *_, targets in evaluate(work_of(run, store, settings)))
    pieces = evaluate(work_of(run, store, replace(settings, keep_losses=True)))
    kept = pd.concat(targets.to_pandas() for *_, targets in pieces)
    assert set(kept["factor"]) == {0.5, 1}  # it is not defined beyond L
    for protocol, factor in (("windows", 0.5), ("windows", 1), ("fixed-target", 1)):
        mine = kept[(kept["protocol"] == protocol) & (kept["factor"] == factor)]
        (group,) = settings.layout(protocol, split, L).rows[int(factor * L)]
        losses_WN = target_losses(model, split, group)
        expected = {
            (split.ids[document], start + at + 1): (at, loss)
            for document, start, losses_N in zip(group.document_W, group.start_W, losses_WN, strict=True)
            for at, loss in enumerate(losses_N, group.length - group.scored)
        }
        assert len(mine) == len(expected)
        found = {(row.document, row.place): (row.position, row.loss) for row in mine.itertuples()}
        assert found.keys() == expected.keys()
        for place, (position, loss) in expected.items():
            assert found[place] == (position, pytest.approx(loss, rel=1e-5))


@pytest.mark.parametrize(
    ("pe", "extension", "alike"),
    [
        ("rope", "pi:factor=4", True), ("rope", "log-n", True), ("rope", "pi", False), ("rope", "dynamic-ntk", False),
        ("random", "as-trained", False),
    ],
)  # fmt: skip
def test_rows_say_whether_their_length_matters_in_itself(store, run_of, pe: str, extension: str, alike: bool) -> None:
    """Also where a length is evaluated by itself."""
    hashes = []
    for factors in ((2, 4), (4,)):
        asked = EvaluationSettings(factors, (extension,), protocols=("windows",), max_targets=64)
        rows, _ = rows_of(run_of(pe), store, asked)
        hashes += rows[rows["extension"] == extension]["plan_hash"].tolist()
    assert hashes[1] == hashes[2]
    assert (hashes[0] == hashes[1] and hashes[0] is not None) == alike
    assert (hashes[0] is None) == (pe == "random")


def test_an_encoding_that_ends_at_l_is_not_available_beyond(store: Store, run_of) -> None:
    rows, documents = rows_of(run_of("learned"), store, EvaluationSettings(factors=(1, 2), max_targets=64))
    within, beyond = (rows[rows["factor"] == factor] for factor in (1, 2))
    assert set(beyond["reason"]) == {f"the encoding is not defined at {2 * L} tokens"}
    assert beyond[["loss", "perplexity"]].isna().all(axis=None)
    assert beyond["control_loss"].notna().all()
    assert within["reason"].isna().all()
    assert within["loss"].notna().all()
    assert documents[documents["factor"] == 2]["loss"].isna().all()


def test_settings_share_the_model_the_control_and_equal_plans(store: Store, run_of, monkeypatch) -> None:
    """Up to L these extensions change nothing: at 1x they have the plain run's numbers without computing them."""
    loaded, computed = [], []
    load = Run.load_model

    def noted(model, split, wanted, plan, **options):
        computed.append(set(wanted))
        return measure(model, split, wanted, plan, **options)

    monkeypatch.setattr(Run, "load_model", lambda self, c: loaded.append(c) or load(self, c))
    monkeypatch.setattr(lengths, "measure", noted)
    extensions = ("pi", "log-n", "window", "yarn", "self-extend", "sinks")
    settings = EvaluationSettings((1, 4), extensions, protocols=("windows",), max_targets=256)
    rows, _ = rows_of(run_of("rope"), store, settings)
    assert len(rows) == 2 * (1 + len(extensions))
    assert len(loaded) == 1
    # Plain at both lengths with the control; each extension at 4x.
    assert computed == [{(L, L), (4 * L, 4 * L), CONTROL}] + [{(4 * L, 4 * L)}] * len(extensions)


class TestMaxTargets:
    """A number alone is a cap: it lowers a protocol's default and never raises it."""

    # ShrinkOnOOM for far more targets than any default.
    ROOM = SimpleNamespace(lengths=np.full(600, 4000))

    def scored(self, **settings) -> dict[str, int]:
        chosen = EvaluationSettings(factors=(1, 2), protocols=tuple(protocols.names()), **settings)
        layouts = {name: chosen.layout(name, self.ROOM, 16) for name in protocols.names()}
        return {name: sum(len(g.start_W) * g.scored for g in layout.control) for name, layout in layouts.items()}

    def test_without_a_number_each_has_its_default(self) -> None:
        assert self.scored() == {name: protocols[name].max_targets for name in protocols.names()}

    def test_a_number_between_two_defaults_lowers_one_and_leaves_the_other(self) -> None:
        assert self.scored(max_targets=16_384) == self.scored() | {"windows": 16_384, "yarn": 16_384}

    def test_a_protocols_own_number_may_be_above_its_default(self) -> None:
        found = self.scored(max_targets={"all": 4096, "windows": 262_144, "fixed-target": 16_384})
        lowered = dict.fromkeys(protocols.names(), 4096)
        assert found == lowered | {"windows": 262_144, "fixed-target": 16_384}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_targets": 127}, "windows: the limit of 127 targets holds no span of 128 tokens: give `max_targets=128`"),
        ({"max_targets": 128}, None),
        (
            {"protocols": tuple(protocols.names()), "max_targets": 7},
            "fixed-target: .* 7 .* no block of 8 targets; .*; yarn: .* no window of 128 tokens: give `max_targets=128`",
        ),
        ({"protocols": ("yarn",), "max_targets": 127}, None),  # a window includes its last target
        ({"max_targets": {"all": 64, "windows": 127}}, "give `max_targets={'all': 64, 'windows': 128}`, or smaller"),
        ({"factors": (1, 16384)}, "the limit of 131072 .* of 262144 .* give `max_targets={'windows': 262144}`"),
        ({"factors": (1, 16384), "max_targets": 64}, "give `max_targets={'all': 64, 'windows': 262144}`,"),
    ],
)
def test_a_limit_that_holds_no_span_is_refused_without_text_and_what_would_do_is_said(settings, message) -> None:
    chosen = EvaluationSettings(**{"factors": (1, 8), "protocols": ("windows",)} | settings)
    with contextlib.nullcontext() if message is None else pytest.raises(UserError, match=message):
        lengths.check_settings(chosen, 16)


@pytest.mark.parametrize(
    ("pe", "extensions"),
    [("rope", ("pi", "temperature", "window", "critical-band")), ("learned", ("log-n",)), ("random", ())],
)
def test_progress_adds_up_to_what_was_expected(store: Store, run_of, pe: str, extensions: tuple[str, ...]) -> None:
    """With probes, constants that are fitted, lengths that are not reached, and where windows share nothing."""
    settings = EvaluationSettings(
        (1, 2, 4), extensions, protocols=tuple(protocols.names()), max_targets=128, probes=("copy",), trials=2
    )  # fmt: skip
    run = run_of(pe)
    told: list[tuple[str, float]] = []

    def advance(what: str, inputs: float, loss: float = 0.0) -> None:
        told.append((what, inputs))

    work = work_of(run, store, settings)
    list(evaluate(work, progress=advance))
    assert sum(inputs for _, inputs in told) == pytest.approx(work.inputs(work.on_text).total())
    told.clear()
    list(probes.evaluate(work, progress=advance))
    assert sum(inputs for _, inputs in told) == work.inputs(work.on_probes).total()


def test_what_can_be_evaluated_is_not_refused(short: Run, markov: Store) -> None:
    checked(short, markov, settings_of())
    checked(short, markov, settings_of(protocols=("sliding",), split="validation", precisions=("bf16",)))
    checked(short, markov, settings_of(extend=("pi", "temperature", "temperature:c=0.1")))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"protocols": ("fixed_target",)}, "unknown protocol 'fixed_target'; did you mean 'fixed-target'"),
        ({"protocols": ()}, f"name at least one protocol: {', '.join(protocols.names())}"),
        ({"factors": (1, 1e308)}, "factor 1e.308 of a training length of 8 makes windows of more than 16777216 tokens"),
        ({"factors": (1, 1e9)}, "makes windows of more than 16777216 tokens"),
        ({"max_targets": 10**400}, "`max_targets` must be from 1 to 9007199254740992"),
        ({"max_targets": {"windows": 2**53 + 1}}, "`max_targets` must be from 1 to"),
        ({"max_targets": {"windows": 0}}, "`max_targets` must be from 1 to"),
        ({"split": "train"}, "no held-out split 'train': choose from"),
        ({"precisions": ("fp31",)}, "unknown precision 'fp31'; did you mean 'fp32'"),
        ({"precisions": ()}, "name at least one precision: fp32, bf16, int8"),
        ({"extend": ("expe-scale",)}, "expe-scale does not apply to RoPE"),
        ({"extend": ("temperature:c=-0.9",)}, "makes the scores' factor"),
        ({"extend": ("temperature",), "factors": (1, 9), "protocols": ("sliding",)}, "no validation document"),
        ({"factors": (1, 9)}, "no held-out document holds a span of 72"),
        ({"max_targets": 31}, "holds no span of 32"),
        ({"protocols": ("windows", "fixed-target"), "factors": (0.25,)}, "an evaluation length of 2 is too short"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(short: Run, markov: Store, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked(short, markov, settings_of(**asked))


def test_a_run_that_is_not_finished_or_has_rows_that_cannot_be_added_to_is_refused(markov: Store, random_run) -> None:
    run = random_run(markov, seq_len=8, fresh=True)
    for rows, documents, targets in evaluate(work_of(run, markov, settings_of(factors=(1,)))):
        kept.add_losses(run.path, rows, documents, targets)
    checked(run, markov, settings_of())
    for table in (EVALS, EVAL_DOCUMENTS):
        path = next(kept.files_of(run.path, table))
        whole = path.read_bytes()
        path.write_bytes(b"no table")
        with pytest.raises(ValueError, match=r"as-trained\.parquet is damaged"):
            checked(run, markov, settings_of())
        pd.DataFrame(read(path, table) if path.write_bytes(whole) else ()).drop(columns="control_loss").to_parquet(path)
        with pytest.raises(ValueError, match="has no column control_loss"):
            checked(run, markov, settings_of())
        path.write_bytes(whole)
    (run.path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="is not finished"):
        checked(run, markov, settings_of())


def test_what_would_be_best_after_a_token_that_is_not_of_the_text_is_not_known(short: Run, markov: Store) -> None:
    rows, _ = rows_of(short, markov, settings_of(protocols=("windows", "windows:bos=true"), max_targets=32))
    known = rows.groupby("protocol")["optimum_loss"].agg(lambda found: found.notna().all())
    assert known.to_dict() == {"windows": True, "windows:bos=true": False}


@pytest.mark.parametrize("split_name", ["test", "validation"])
def test_rows_have_their_targets_hash_and_optimum_and_documents_add_up_to_it(
    short: Run, markov: Store, split_name: str
) -> None:
    settings = settings_of(split=split_name)
    rows, found = rows_of(short, markov, settings)
    assert len(rows) == 4
    split = markov.split(split_name)
    for row in rows.to_dict("records"):
        layout = settings.layout(row["protocol"], split, 8)
        assert row["targets_hash"] == targets_hash(layout.control, markov.corpus_hash, split_name)
        assert (row["split"], row["corpus_hash"]) == (split_name, markov.corpus_hash)
        optimum_N = optimal_losses(parse_process(MARKOV), split, layout.rows[row["length"]])
        assert row["optimum_loss"] == pytest.approx(optimum_N.mean())
        assert row["factor"] == row["length"] / 8
        mine = found[(found["protocol"] == row["protocol"]) & (found["length"] == row["length"])]
        assert (mine["optimum_loss"] * mine["n_targets"]).sum() == pytest.approx(optimum_N.sum())
        targets = Targets.of(layout.control, split, None)
        assert row["n_documents"] == len(set(targets.document_N.tolist())) == mine["document"].nunique()


def test_progress_names_what_is_measured_and_adds_up_to_what_is_expected(short: Run, markov: Store) -> None:
    told: dict[str, float] = defaultdict(float)

    def progress(what: str, inputs: float, loss: float = 0.0) -> None:
        told[what] += inputs

    settings = settings_of(protocols=("windows",), extend=("pi", "temperature"), precisions=("fp32", "bf16"))
    work = work_of(short, markov, settings)
    list(evaluate(work, progress=progress))
    # What pi does at 1x is nothing, so that only 4x is measured again: 256 targets, each window's inputs all new.
    plain, pi, warm = (f"the-run windows RoPE{name}" for name in ("", " + PI", " + Temperature"))
    assert {what for what, inputs in told.items() if inputs} == {
        f"{plain} 1x, 4x", f"{pi} 4x", f"{warm} 4x", f"{warm}, fitting",
    }  # fmt: skip
    assert told[f"{pi} 4x"] == told[f"{warm} 4x"] == 2 * 256
    assert sum(told.values()) == work.inputs(work.items).total()


def test_models_are_where_they_are_wanted(short: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was loaded, and the copy that a precision runs; "meta" is a device that every machine has."""
    monkeypatch.setattr(lengths, "in_precision", lambda model, precision: copy.deepcopy(model))
    found = list(models(short, settings_of(precisions=("fp32", "int8")), "meta"))
    assert [precision for _, _, precision, _ in found] == ["fp32", "int8"]
    for _, loaded, _, model in found:
        assert loaded is not model
        assert loaded.head.weight.device.type == model.head.weight.device.type == "meta"
