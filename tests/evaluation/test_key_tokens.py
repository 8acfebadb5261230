"""Which targets are key tokens, against loops over all pairs of tokens; and what they show of models that are known."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import extrapolate as xt
from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.documents import Document
from extrapolate.data.store import Store
from extrapolate.data.synthetic.base import ALPHABET, parse_process
from extrapolate.evaluation import key_tokens
from extrapolate.evaluation.key_tokens import copies_beyond, gained_beyond
from extrapolate.evaluation.lengths import evaluate
from extrapolate.evaluation.optimum import optimal_losses, process_of
from extrapolate.evaluation.protocols.base import Windows, protocols
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import Targets
from extrapolate.evaluation.work import work_of
from extrapolate.interop.foreign import ForeignRun

L = 8


def split_of(documents: list[list[int]]) -> SimpleNamespace:
    tokens = np.array([token for document in documents for token in document], np.uint16)
    lengths = np.array([len(document) for document in documents])
    return SimpleNamespace(
        offsets=np.concatenate([[0], np.cumsum(lengths)]), lengths=lengths, slice=lambda start, end: tokens[start:end]
    )


def naive(document: list[int], target: int, first: int, context: int) -> bool:
    """Whether the token at `target` is a key token in a window that begins at `first`."""
    copies = []
    for earlier in range(first + context, target):
        if all(document[earlier - i] == document[target - i] for i in range(context + 1)):
            copies.append(target - earlier)
    return bool(copies) and min(copies) > L


@pytest.mark.parametrize("context", [1, 2, 3])
@pytest.mark.parametrize("protocol", protocols.names())
def test_copies_against_every_pair_of_tokens(protocol: str, context: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_tokens, "AT_ONCE", 100)  # a few windows at a time
    monkeypatch.setattr(key_tokens, "CONTEXT", context)
    rng = np.random.default_rng(context)
    documents = [rng.integers(0, (12, 5, 3)[context - 1], size).tolist() for size in (90, 131, 67)]
    split = split_of(documents)
    layout = protocols[protocol]().layout(split.lengths, L, [L, 2 * L, 6 * L], 256)
    groups = layout.rows[6 * L]
    targets = Targets.of(groups, split, None, lossless=False)
    expected = {
        (int(document), int(start) + group.length - i): naive(
            documents[document], int(start) + group.length - i, int(start), context
        )
        for group in groups
        for document, start in zip(group.document_W, group.start_W, strict=True)
        for i in range(group.scored)
    }
    found_N = copies_beyond(groups, split, L)
    places = zip(targets.document_N.tolist(), targets.place_N.tolist(), strict=True)
    assert dict(zip(places, found_N.tolist(), strict=True)) == expected
    assert 0 < found_N.mean() < 0.6


def key_places(document: list[int], start: int = 0, context: int = 2) -> list[int]:
    """The places of key tokens in one window from `start` to the document's end."""
    length = len(document) - 1 - start
    window = Windows(np.array([0]), np.array([start]), length, length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_tokens, "CONTEXT", context)
        return [int(at) + start + 1 for at in np.flatnonzero(copies_beyond([window], split_of([document]), L))]


def apart(distance: int) -> list[int]:
    """No token twice but for 1 2 3, from place 5 on and `distance` further on; 3 is at 7 and 7 + distance."""
    between = list(range(20, 20 + distance - 3))
    return [10, 11, 12, 13, 14, 1, 2, 3, *between, 1, 2, 3, 15]


def test_a_copy_is_beyond_l_by_one_token_or_not_at_all() -> None:
    assert key_places(apart(L)) == []  # the last L tokens still have it
    assert key_places(apart(L + 1)) == [7 + L + 1]
    near_too = [*apart(L + 5)[:-1], 16, 1, 2, 3, 15]
    assert key_places(near_too) == [7 + L + 5]  # and not the third, which has a copy 4 back


def test_a_copy_is_whole_within_the_window() -> None:
    assert key_places(apart(L + 5), start=5) == [7 + L + 5]
    assert key_places(apart(L + 5), start=6) == []  # the first of the tokens before the copy is left out
    assert key_places(apart(L + 5)[:6], start=0, context=7) == []  # no window is as long


def test_it_is_the_target_that_has_the_copy_after_the_same_tokens() -> None:
    document = apart(L + 5)
    other = [*document[:-2], 4, 15]  # another token follows
    assert key_places(other) == []
    before = [*document[:5], 9, *document[6:]]  # another token comes before
    assert key_places(before) == []
    assert key_places(before, context=1) == [7 + L + 5]
    assert key_places(document, context=3) == []  # one token more comes before than is repeated


@pytest.fixture(scope="module")
def markov(tmp_path_factory: pytest.TempPathFactory) -> Store:
    spec = "markov:states=4,concentration=0.3,documents=200,length=130"
    folder = tmp_path_factory.mktemp("synthetic") / "store"
    return build_store(parse_process(spec), StoreSettings(source=f"synthetic:{spec}"), folder)


@pytest.mark.parametrize("protocol", protocols.names())
def test_with_a_known_optimum_each_target_with_and_without_what_lies_beyond(
    protocol: str, markov: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_tokens, "AT_ONCE", 100)
    monkeypatch.setattr(key_tokens, "AT_ONCE_CUT", 50)
    split, process = markov.split("test"), process_of(markov)
    assert process is not None
    groups = protocols[protocol]().layout(split.lengths, L, [L, 3 * L], 500).rows[3 * L]
    best_N = optimal_losses(process, split, groups)
    found_N = gained_beyond(groups, split, L, process, best_N)
    targets = Targets.of(groups, split, None, lossless=False)
    known = dict(zip(zip(targets.document_N.tolist(), targets.place_N.tolist(), strict=True), found_N, strict=True))
    for group in groups:
        for document, start in zip(group.document_W.tolist(), group.start_W.tolist(), strict=True):
            offset = int(split.offsets[document]) + start
            window = split.slice(offset, offset + group.length + 1).astype(np.int64)
            whole = process.optimum(window[None])[0]
            for target in range(group.length - group.scored + 1, group.length + 1):
                last = window[max(0, target - L) : target + 1]
                gain = process.optimum(last[None])[0, -1] - whole[target - 1]
                at_least_twice_as_probable = gain >= math.log(2)
                assert known[document, start + target] == at_least_twice_as_probable, (target, gain)
    assert 0 < found_N.mean() < 0.5


@pytest.mark.parametrize(("probability", "is_key"), [(0.505, True), (0.495, False)])
def test_what_lies_beyond_at_least_doubles_the_probability(probability: float, is_key: bool) -> None:
    """Which is a quarter with the last L tokens alone."""
    cut = SimpleNamespace(optimum=lambda tokens_WT: np.full((len(tokens_WT), L), math.log(4)))
    window = Windows(np.array([0]), np.array([0]), 12, scored=2)
    whole_N = np.full(2, -math.log(probability))
    assert gained_beyond([window], split_of([list(range(13))]), L, cut, whole_N).tolist() == [is_key] * 2


def test_windows_of_l_have_no_key_tokens(markov: Store) -> None:
    split, process = markov.split("test"), process_of(markov)
    assert process is not None
    groups = protocols["windows"]().layout(split.lengths, L, [L], 500).rows[L]
    assert not copies_beyond(groups, split, L).any()
    assert not gained_beyond(groups, split, L, process, optimal_losses(process, split, groups)).any()


@pytest.mark.parametrize("bos", [False, True])
def test_rows_say_which_rule_they_follow(markov: Store, random_run, bos: bool) -> None:
    """And the rows of documents add up to them."""
    settings = EvaluationSettings(factors=(1, 4), protocols=(f"windows:bos={str(bos).lower()}",), max_targets=512)
    run = random_run(markov, seq_len=16)
    ((rows, documents, _),) = evaluate(work_of(run, markov, settings))
    assert {row["key_context"] for row in rows} == {3 if bos else None}  # the optimum is not known after the token
    assert {row["key_within"] for row in rows} == {64}
    assert len({row["n_key"] for row in rows}) == 1
    assert 0 < rows[0]["n_key"] < rows[0]["n_targets"] / 2
    assert len({row["key_control_loss"] for row in rows}) == 1
    table = pd.DataFrame(documents).astype({"key_loss": float, "key_control_loss": float})
    assert (table["key_loss"].isna() == (table["n_key"] == 0)).all()
    for row in rows:
        mine = table[(table["factor"] == row["factor"])]
        assert mine["n_key"].sum() == row["n_key"]
        for name in ("key_loss", "key_control_loss"):
            assert (mine[name] * mine["n_key"]).sum() / row["n_key"] == pytest.approx(row[name], rel=1e-6)
    if bos:
        layout = settings.layout("windows", markov.split("test"), 16).beginning_with(rows[0]["bos_token"])
        assert rows[0]["n_key"] == copies_beyond(layout.rows[64], markov.split("test"), 16).sum()
    else:
        assert rows[1]["key_optimum_loss"] < rows[0]["key_optimum_loss"]


# The text of the construction: most tokens are drawn anew, and cannot be predicted. A mark and the two tokens after it
# announce a fourth; each announcement is made twice, `NEAR` or `FAR` tokens apart.
FULL, NEAR, FAR = 32, 10, 40
CELL, PLACES = 96, {NEAR: 5, FAR: 34}  # tokens that are laid out alike, and where in them announcements begin
MARK, STATES = 0, 62
RIGHT = 0.9  # what a model that sees an announcement gives to the token that it announced


def announced(rng: np.random.Generator) -> str:
    pairs = iter(rng.permutation((STATES - 1) ** 2).tolist())
    tokens: list[int] = []
    for _ in range(4):
        cell = rng.integers(1, STATES, CELL)
        for back, place in PLACES.items():
            first, second = divmod(next(pairs), STATES - 1)
            for at, around in ((place, 1), (place + back, 2)):  # no copy is longer
                cell[at - 1 : at + 5] = around, MARK, first + 1, second + 1, cell[place + 3], around
        tokens += cell.tolist()
    tokens.append(1)
    fours = [tuple(tokens[at : at + 4]) for at in range(len(tokens) - 3)]
    if len(fours) - len(set(fours)) > 2 * 4:  # others were drawn twice
        return announced(rng)
    return "".join(ALPHABET[token] for token in tokens)


@pytest.fixture(scope="module")
def construction(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("announced")
    parse_process(f"echo:states={STATES}").tokenizer().save(str(folder / "tokenizer.json"))
    rng = np.random.default_rng(0)
    settings = StoreSettings("announced", tokenizer=str(folder / "tokenizer.json"), min_heldout_tokens=100)
    return build_store([Document(str(i), announced(rng)) for i in range(160)], settings, folder / "store")


def remembers(tokens: int, store: Store, name: str) -> ForeignRun:
    """A model that knows what was announced within its last inputs, and nothing about other tokens."""
    said = math.log(RIGHT / (1 - RIGHT) * STATES)  # <eos> is a token too

    def logits(tokens_BT: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(*tokens_BT.shape, STATES + 1)
        for row, text in enumerate(tokens_BT.tolist()):
            marks = [at for at, token in enumerate(text[:-2]) if token == MARK]
            for mark in marks:
                now = mark + 2  # the last input
                for earlier in (one for one in marks if now - tokens < one < mark - 2):
                    if text[earlier : earlier + 3] == text[mark : now + 1]:
                        found[row, now, text[earlier + 3]] = said
        return found

    return xt.foreign(logits, name, FULL, store.path, out=f"ckpt/{name}")


@pytest.mark.usefixtures("without_pictures")
def test_a_model_that_remembers_and_one_that_forgets_differ_by_the_construction(
    construction: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On key tokens by all of it, on all others by nothing; in the table, by document, and in the report."""
    monkeypatch.chdir(tmp_path)
    models = [remembers(10**6, construction, "memory"), remembers(FULL, construction, "window")]
    factors = (1, 2, 4)
    rows = xt.evaluate(models, data=construction, factors=factors, protocols=("fixed-target", "windows"))
    blind, sure = math.log(STATES + 1), -math.log(RIGHT)

    fixed = rows[rows["protocol"] == "fixed-target"].set_index(["model", "factor"])
    n_key, n_targets = fixed["n_key"].iloc[0], fixed["n_targets"].iloc[0]
    assert fixed["n_key"].nunique() == 1
    split = construction.split("test")
    layout = EvaluationSettings(factors).layout("fixed-target", split, FULL)
    places = Targets.of(layout.control, split, None, lossless=False).place_N
    assert n_key == (places % CELL == PLACES[FAR] + FAR + 3).sum()
    for factor in factors:
        memory, window = fixed.loc[("memory", factor)], fixed.loc[("window", factor)]
        assert memory["key_loss"] == pytest.approx(blind if factor == 1 else sure, abs=1e-5)
        assert window["key_loss"] == pytest.approx(blind, abs=1e-5)
        assert memory["key_control_loss"] == window["key_control_loss"] == pytest.approx(blind, abs=1e-5)
        # The mean hides it: a hundredth of the difference is left.
        assert window["loss"] - memory["loss"] == pytest.approx(
            0 if factor == 1 else (blind - sure) * n_key / n_targets, abs=1e-5
        )

    cut = rows[rows["protocol"] == "windows"].set_index(["model", "factor"])
    losses = [cut.loc[("memory", factor), "key_loss"] for factor in factors]
    assert losses[0] == pytest.approx(blind, abs=1e-5)
    assert sure + 0.1 < losses[1] < blind - 0.1  # windows of 2 L have some of the copies
    assert losses[2] == pytest.approx(sure, abs=1e-5)
    assert cut.loc["window", "key_loss"].tolist() == pytest.approx([blind] * 3, abs=1e-5)

    xt.report("ckpt", out="report")
    table = pd.read_parquet("report/key_tokens.fixed-target.parquet").set_index(["targets", "model", "factor"])
    assert set(table["n_targets"]) == {n_key, n_targets - n_key}
    assert table["low"].notna().all()
    for (targets, model, factor), row in table.iterrows():
        known = targets == "key" and model == "memory" and factor > 1
        for name in ("difference", "low", "high"):
            assert row[name] == pytest.approx(sure - blind if known else 0, abs=1e-5), (targets, model, factor, name)
    page = Path("report/report.md").read_text()
    assert "## Key tokens under fixed-target" in page
    assert (
        f"{n_key:,} of {n_targets:,} targets ({n_key / n_targets:.1%}) need text beyond L: they have a copy in their "
        in page
    )
