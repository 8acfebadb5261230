"""The rows of an evaluation: exact counts, the control, documents that add up, what is shared and what is n/a."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.store import Store
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.evaluation import lengths, probes
from extrapolate.evaluation.lengths import evaluate
from extrapolate.evaluation.losses import target_losses
from extrapolate.evaluation.protocols.base import CONTROL, protocols
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.window_losses import measure
from extrapolate.model.attention import Setting
from extrapolate.model.model import Model
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run

L = 16


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    rng = np.random.default_rng(0)
    words = ["très", "rouge", "vert", "pierre", "été", "nuage", "chante", "tombe"]
    documents = [Document(str(i), " ".join(rng.choice(words, 250 + 20 * i))) for i in range(12)]
    settings = StoreSettings(source="words", vocab_size=290, min_heldout_tokens=200)
    return build_store(documents, settings, tmp_path_factory.mktemp("data") / "words")


@pytest.fixture(scope="module")
def run_of(store: Store, tmp_path_factory: pytest.TempPathFactory):
    """A run with random weights, scaled up so that losses differ between tokens."""

    def make(pe: str, **model_sizes: float) -> Run:
        sizes = {"width": 32, "layers": 2, "heads": 2, "head_dim": 16, "ff_width": 48, **model_sizes}
        config, _ = resolve(TrainingRequest(pe=pe, model=sizes, training={"seq_len": L, "tokens": 8192}), store)
        run = Run.create(tmp_path_factory.mktemp("runs") / pe, config, (store.path / "tokenizer.json").read_bytes())
        torch.manual_seed(0)
        model = run.build_model()
        with torch.no_grad():
            model.head.weight.mul_(20)
            model.blocks[0].attention.qkv.weight.mul_(10)
        run.save_weights(model, 32, 8192, final=True)
        return run

    return make


def rows_of(run: Run, store: Store, settings: EvaluationSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    pieces = list(evaluate(run, store, settings))
    return tuple(pd.DataFrame([row for piece in pieces for row in piece[i]]) for i in (0, 1))


def test_rows_are_exact(store: Store, run_of) -> None:
    """Loss, counts and bytes against sums over the documents' own tokens and text."""
    run = run_of("rope")
    settings = EvaluationSettings(factors=(1, 4), protocols=tuple(protocols.names()), max_targets=640)
    rows, documents = rows_of(run, store, settings)
    split, tokenizer = store.split("test"), store.tokenizer()
    model = run.load_model(run.checkpoints("last")[0])
    for protocol in protocols.names():
        layout = settings.layout(protocol, split, L)
        for length, groups in layout.rows.items():
            row = rows[(rows["protocol"] == protocol) & (rows["length"] == length)].iloc[0]
            targets = np.concatenate([g.targets().reshape(-1, 2) for g in groups])
            total = sum(target_losses(model, split, g).astype(np.float64).sum() for g in groups)
            assert row["n_targets"] == len(targets)
            assert row["n_documents"] == len(set(targets[:, 0]))
            assert row["loss"] == pytest.approx(total / len(targets), rel=1e-6)
            assert row["perplexity"] == pytest.approx(math.exp(row["loss"]))
            ids = [int(split.slice(split.offsets[d] + p, split.offsets[d] + p + 1)[0]) for d, p in targets]
            # A byte-level token's name has a character a byte: decoding single tokens would break "été".
            assert row["n_bytes"] == sum(len(tokenizer.id_to_token(i)) for i in ids)
            assert row["bits_per_byte"] == pytest.approx(total / math.log(2) / row["n_bytes"], rel=1e-6)
            mine = documents[(documents["protocol"] == protocol) & (documents["length"] == length)]
            assert mine["n_targets"].sum() == row["n_targets"]
            assert (mine["loss"] * mine["n_targets"]).sum() / row["n_targets"] == pytest.approx(row["loss"])
            assert (mine["control_loss"] * mine["n_targets"]).sum() / row["n_targets"] == pytest.approx(
                row["control_loss"]
            )


def test_the_control_of_fixed_target_is_the_plain_row_at_1x(store: Store, run_of) -> None:
    settings = EvaluationSettings(factors=(1, 2, 4), extend=("pi", "pi:factor=2"), max_targets=640)
    rows, _ = rows_of(run_of("rope"), store, settings)
    fixed = rows[rows["protocol"] == "fixed-target"]
    plain = fixed[(fixed["extension"] == "as-trained") & (fixed["factor"] == 1)]["loss"].item()
    assert set(fixed["control_loss"]) == {plain}
    assert fixed[(fixed["extension"] == "pi") & (fixed["factor"] == 1)]["loss"].item() == plain
    assert fixed[(fixed["extension"] == "pi:factor=2") & (fixed["factor"] == 1)]["loss"].item() != plain
    assert set(rows["model"]) == {"RoPE", "RoPE + PI", "RoPE + PI(2)"}
    assert rows.groupby("protocol")["targets_hash"].nunique().tolist() == [1, 1]


def test_equal_plans_are_computed_once(store: Store, run_of, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = computed_by(monkeypatch)
    settings = EvaluationSettings(factors=(1, 2), extend=("pi",), protocols=("fixed-target",), max_targets=320)
    rows_of(run_of("rope"), store, settings)
    # Pi at 1x is the plain row at 1x, and the control comes with that row.
    assert [set(keys) for _, keys in calls] == [{CONTROL, L, 2 * L}, {2 * L}]


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
    setting, asked = Model.setting, []

    def noted(model: Model, plan: Plan, storage: str = "fp32") -> Setting:
        asked.append(storage)
        return setting(model, plan, storage)

    monkeypatch.setattr(Model, "setting", noted)
    settings = EvaluationSettings(factors=(1,), protocols=("windows",), max_targets=64, precisions=("fp32", "bf16"))
    rows_of(run_of("expe"), store, settings)
    assert asked == ["fp32", "fp32", "bf16", "bf16"]  # the first of each: whether a token sees later ones


def test_every_checkpoint_has_its_own_weights_and_tokens(store: Store, run_of) -> None:
    run = run_of("rope")
    model = run.build_model()
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


def test_losses_by_position_are_those_of_that_place_in_the_window(store: Store, run_of) -> None:
    """By the index of the last input: a bucket of L/2 = 8 begins with the one that it is named after."""
    run = run_of("rope")
    model, split = run.load_model(run.checkpoints("last")[0]), store.split("test")
    settings = EvaluationSettings((4,), protocols=("windows", "fixed-target"), max_targets=512)
    _, documents = rows_of(run, store, settings)
    (group,) = settings.layout("windows", split, L).rows[4 * L]
    losses_WN = target_losses(model, split, group)
    tiled = documents[documents["protocol"] == "windows"]
    assert sorted(set(tiled["position"])) == list(range(0, 4 * L, 8))
    for position, mine in tiled.groupby("position"):
        assert mine["n_targets"].sum() == 8 * len(losses_WN)
        total = (mine["loss"] * mine["n_targets"]).sum()
        assert total == pytest.approx(losses_WN[:, position : position + 8].sum(), rel=1e-5)
    # Blocks of L/2 at the end of their windows.
    assert set(documents.loc[documents["protocol"] == "fixed-target", "position"]) == {4 * L - 8}


def test_losses_by_position_are_kept_for_buckets_of_any_size(store: Store, run_of) -> None:
    run = run_of("rope")
    settings = EvaluationSettings((1, 4), protocols=("windows",), max_targets=512)
    usual, fine = (rows_of(run, store, replace(settings, position_bucket=size))[1] for size in (None, 2))
    assert set(usual["bucket"]) == {8}
    assert set(fine["bucket"]) == {2}
    assert sorted(set(fine.loc[fine["factor"] == 4, "position"])) == list(range(0, 4 * L, 2))
    fine["total"], fine["position"] = fine["loss"] * fine["n_targets"], fine["position"] // 8 * 8
    place = ["factor", "document", "block", "position"]
    sums = fine.groupby(place)[["total", "n_targets"]].sum()
    assert sums["n_targets"].tolist() == usual.set_index(place).sort_index()["n_targets"].tolist()
    means = usual.set_index(place).sort_index()["loss"].tolist()
    assert (sums["total"] / sums["n_targets"]).tolist() == pytest.approx(means)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"position_bucket": 3}, "`position_bucket=3` does not divide the training length 16"),
        ({"position_bucket": 32}, "`position_bucket=32` does not divide the training length 16"),
        ({"position_bucket": 1}, "makes 512 rows of documents at one length, and 500 is the most: give at least 2"),
        ({"keep_losses": True}, "would add up to 2048 losses to the 0 of .*eval_targets.parquet, and 2047 is the most"),
    ],
)
def test_too_many_losses_are_refused(store: Store, run_of, monkeypatch, settings, message: str) -> None:
    monkeypatch.setattr("extrapolate.evaluation.settings.MOST_BUCKETS", 500)
    monkeypatch.setattr(lengths, "MOST_LOSSES", 2047)
    asked = EvaluationSettings((1, 4), ("pi",), protocols=("windows",), max_targets=512)
    lengths.check(run_of("rope"), store, asked)
    with pytest.raises(UserError, match=message):
        lengths.check(run_of("rope"), store, replace(asked, **settings))


def test_the_loss_of_every_target_is_kept_where_it_was_asked_for(store: Store, run_of) -> None:
    run = run_of("learned")
    model, split = run.load_model(run.checkpoints("last")[0]), store.split("test")
    settings = EvaluationSettings((0.5, 1, 2), protocols=("windows", "fixed-target"), max_targets=256)
    assert all(not len(targets) for *_, targets in evaluate(run, store, settings))
    kept = pd.concat(targets.to_pandas() for *_, targets in evaluate(run, store, replace(settings, keep_losses=True)))
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
        ("rope", "as-trained", True), ("rope", "pi:factor=4", True), ("rope", "log-n", True), ("rope", "pi", False),
        ("rope", "dynamic-ntk", False), ("random", "as-trained", False),
    ],
)  # fmt: skip
def test_rows_say_whether_their_length_matters_in_itself(store, run_of, pe: str, extension: str, alike: bool) -> None:
    """Also where each length is evaluated by itself."""
    hashes = []
    for factors in ((2, 4), (2,), (4,)):
        asked = EvaluationSettings(factors, (extension,), protocols=("windows",), max_targets=256)
        rows, _ = rows_of(run_of(pe), store, asked)
        hashes += rows[rows["extension"] == extension]["plan_hash"].tolist()
    assert hashes[:2] == hashes[2:]
    assert (hashes[0] == hashes[1] and hashes[0] is not None) == alike
    assert (hashes[0] is None) == (pe == "random")


def computed_by(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plan, list[int]]]:
    """Fills with the plan and the keys of every measurement."""
    calls: list[tuple[Plan, list[int]]] = []

    def counted(model, split, wanted, plan, **options):
        calls.append((plan, list(wanted)))
        return measure(model, split, wanted, plan, **options)

    monkeypatch.setattr(lengths, "measure", counted)
    return calls


def test_an_encoding_that_ends_at_l_is_not_available_beyond(store: Store, run_of) -> None:
    rows, documents = rows_of(run_of("learned"), store, EvaluationSettings(factors=(1, 2), max_targets=320))
    beyond = rows[rows["factor"] == 2]
    assert beyond["loss"].isna().all()
    assert set(beyond["reason"]) == {f"the encoding is not defined at {length} tokens" for length in beyond["length"]}
    assert rows[rows["factor"] == 1]["reason"].isna().all()
    assert beyond["perplexity"].isna().all()
    assert beyond["control_loss"].notna().all()
    assert rows[rows["factor"] == 1]["loss"].notna().all()
    assert documents[documents["factor"] == 2]["loss"].isna().all()


def test_a_store_of_another_corpus_is_refused(store: Store, run_of, tmp_path: Path) -> None:
    documents = [Document(str(i), f"{i} other words " * 200) for i in range(12)]
    other = build_store(documents, StoreSettings(vocab_size=270, min_heldout_tokens=200), tmp_path / "other")
    with pytest.raises(ValueError, match="was trained on corpus"):
        lengths.check(run_of("none"), other, EvaluationSettings(factors=(1,)))


def test_extensions_share_the_model_the_control_and_what_they_do_not_change(
    store: Store, run_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to L these extensions change nothing: at 1x they have the plain run's numbers without computing them."""
    run = run_of("rope")
    loaded = []
    load = Run.load_model
    monkeypatch.setattr(Run, "load_model", lambda self, c: loaded.append(c) or load(self, c))
    computed = computed_by(monkeypatch)
    extensions = ("log-n", "window", "yarn", "self-extend", "sinks")
    settings = EvaluationSettings((1, 4), extensions, protocols=("windows",), max_targets=256)
    rows, _ = rows_of(run, store, settings)
    assert len(rows) == 2 * (1 + len(extensions))
    assert len(loaded) == 1
    # Plain at both lengths with the control; each extension at 4x.
    assert [keys for _, keys in computed] == [[L, 4 * L, CONTROL]] + [[4 * L]] * len(extensions)


class TestMaxTargets:
    """A number alone is a cap: it lowers a protocol's default and never raises it."""

    # Room for far more targets than any default.
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
    ("pe", "extensions"),
    [("rope", ("pi", "dynamic-ntk", "temperature", "window")), ("learned", ("log-n",)), ("random", ())],
)
def test_progress_adds_up_to_what_was_expected(store: Store, run_of, pe: str, extensions: tuple[str, ...]) -> None:
    """Of two precisions, probes and constants that are fitted; and where windows of an encoding share nothing."""
    settings = EvaluationSettings(
        (1, 2, 4), extensions, protocols=tuple(protocols.names()), max_targets=256, precisions=("fp32", "bf16"),
        probes=("needle,copy",), trials=3,
    )  # fmt: skip
    run = run_of(pe)
    told: list[tuple[str, float]] = []

    def advance(what: str, inputs: float) -> None:
        told.append((what, inputs))

    list(evaluate(run, store, settings, progress=advance))
    assert sum(inputs for _, inputs in told) == pytest.approx(lengths.expected_inputs(run, store, settings))
    told.clear()
    list(probes.evaluate(run, store, settings, progress=advance))
    assert sum(inputs for _, inputs in told) == probes.expected_inputs(run, store, settings)
