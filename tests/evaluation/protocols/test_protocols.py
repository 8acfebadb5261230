"""Protocols against a slow, obvious reference, token by token; and their boundaries."""

import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import extrapolate as xt
from extrapolate.cli import main
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols._spans import spread
from extrapolate.evaluation.protocols.base import Windows, lengths_of, protocols, targets_hash
from extrapolate.runs.run import Run

Target = tuple[int, int]


def targets_of(groups: tuple[Windows, ...]) -> Counter[Target]:
    return Counter((int(d), int(p)) for group in groups for d, p in group.targets().reshape(-1, 2))


def context_of(groups: tuple[Windows, ...]) -> dict[Target, int]:
    """For every target the number of inputs before it, counted by walking through each window."""
    context = {}
    for group in groups:
        for document, start in zip(group.document_W, group.start_W, strict=True):
            for offset in range(group.length):  # input start+offset predicts start+offset+1
                if offset >= group.length - group.scored:
                    context[int(document), int(start + offset + 1)] = offset + 1
    return context


def inside(groups: tuple[Windows, ...], document_lengths: np.ndarray) -> bool:
    return all(
        (g.start_W >= 0).all() and (g.start_W + g.length + 1 <= document_lengths[g.document_W]).all() for g in groups
    )


# The protocols that `context_in_words` knows. Another one has a test of its own, beside those for every protocol here.
IN_WORDS = ("windows", "fixed-target", "sliding")


def context_in_words(
    protocol: str, tokens: int, seq_len: int, lengths: Sequence[int], row: int | None
) -> dict[int, int]:
    """What the page on protocols says, for one document and no limit: each target's inputs. A row of None: the control.

    Token by token: where the window that scores a target begins, found by moving windows along until one holds it.
    """
    step, longest, span = max(1, seq_len // 2), max(seq_len, *lengths), math.lcm(seq_len, *lengths)
    length = seq_len if row is None else row
    context = {}
    for target in range(1, tokens):
        if protocol == "fixed-target":
            # Blocks end at the longest length, and every step from there, as long as the document has the token.
            end = longest
            while end < target:
                end += step
            if end < tokens and target > end - step:
                context[target] = target - (end - length)
            continue
        first = (target - 1) // span * span
        if first + span >= tokens:
            continue  # the document ends before this span does
        end = first + length
        while end < target:
            end += length if protocol == "windows" and row is not None else step
        end = min(end, first + span)
        context[target] = target - (end - length)
    return context


@pytest.mark.parametrize("protocol", IN_WORDS)
@pytest.mark.parametrize(
    ("seq_len", "factors"),
    [
        (4, (1, 2, 4)),
        (4, (2,)),
        (5, (1, 3)),
        (6, (1, 2, 3)),
        (8, (0.5, 1, 4)),
        (3, (1, 1 / 3, 2)),
        (8, (1.5,)),
        (4, (1.5, 2.5)),
        (9, (2 / 3, 4 / 3)),
    ],
)
def test_every_token_is_scored_as_the_slow_reference_says(
    protocol: str, seq_len: int, factors: tuple[float, ...]
) -> None:
    """For every document length up to two spans and a bit, so around every boundary."""
    lengths = [round(factor * seq_len) for factor in sorted(factors)]
    if protocol == "fixed-target":
        lengths = [length for length in lengths if length >= max(1, seq_len // 2)]
    scored = 0
    for tokens in range(2 * math.lcm(seq_len, *lengths) + 3):
        expected = {row: context_in_words(protocol, tokens, seq_len, lengths, row) for row in (None, *lengths)}
        if not expected[None]:
            with pytest.raises(ValueError, match="no held-out document holds"):
                protocols[protocol]().layout(np.array([tokens]), seq_len, lengths, 10_000)
            continue
        layout = protocols[protocol]().layout(np.array([tokens]), seq_len, lengths, 10_000)
        assert {p: n for (_, p), n in context_of(layout.control).items()} == expected[None], tokens
        for length in lengths:
            assert {p: n for (_, p), n in context_of(layout.rows[length]).items()} == expected[length], (tokens, length)
        scored += len(expected[None])
    assert scored


def test_protocols_by_hand() -> None:
    """L = 4, factors 1 and 2: a document of 17 tokens holds two spans of 8 and the last target."""
    document_lengths = np.array([17, 8, 3])
    windows, sliding = (protocols[name]().layout(document_lengths, 4, [4, 8], 1000) for name in ("windows", "sliding"))
    # Windows that move on by 2: within each span, 4 targets with 1 to 4 inputs, then pairs with 3 and 4.
    moving = {1: 1, 2: 2, 3: 3, 4: 4, 5: 3, 6: 4, 7: 3, 8: 4}
    for layout in (windows, sliding):
        assert context_of(layout.rows[8]) == {(0, p): (p - 1) % 8 + 1 for p in range(1, 17)}
        assert context_of(layout.control) == {(0, p): moving[(p - 1) % 8 + 1] for p in range(1, 17)}
    assert context_of(windows.rows[4]) == {(0, p): (p - 1) % 4 + 1 for p in range(1, 17)}
    assert sliding.control is sliding.rows[4]
    # Blocks of two targets, each the last of its windows of 4 and of 8 inputs.
    fixed = protocols["fixed-target"]().layout(np.array([13, 8]), 4, [4, 8], 1000)
    assert context_of(fixed.rows[4]) == context_of(fixed.control) == {(0, p): 3 if p % 2 else 4 for p in range(7, 13)}
    assert context_of(fixed.rows[8]) == {(0, p): 7 if p % 2 else 8 for p in range(7, 13)}


@pytest.mark.parametrize("protocol", protocols.names())
@settings(max_examples=60, deadline=None)
@given(
    seq_len=st.integers(2, 9),
    factors=st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True),
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=6),
    budget=st.integers(1, 400),
)
def test_what_holds_for_every_layout(
    protocol: str, seq_len: int, factors: list[int], lengths: list[int], budget: int
) -> None:
    documents = np.array(lengths)
    wanted = lengths_of([float(f) for f in factors], seq_len)
    block = max(1, seq_len // 2) if protocol == "fixed-target" else math.lcm(seq_len, *wanted)
    needed = max(seq_len, *wanted) if protocol == "fixed-target" else block
    refusal = ""
    try:
        layout = protocols[protocol]().layout(documents, seq_len, wanted, budget)
    except UserError as error:
        refusal = str(error)
    assert protocol not in IN_WORDS or bool(refusal) == (budget < block or documents.max() <= needed)
    if refusal:
        assert "holds no" in refusal or "no held-out document holds" in refusal
        return
    control = targets_of(layout.control)
    assert max(control.values()) == 1, "a target is scored twice"
    assert 0 < sum(control.values()) <= budget
    assert set(layout.rows) == set(wanted)
    for length, groups in layout.rows.items():
        assert targets_of(groups) == control, "other tokens are scored"
        assert inside(groups, documents), "a window leaves its document"
        assert all(0 < group.scored <= group.length <= length for group in groups)
        assert protocol not in IN_WORDS or {group.length for group in groups} == {length}
    assert inside(layout.control, documents)
    context = context_of(layout.control)
    assert max(context.values()) <= seq_len
    assert targets_hash(layout.control, "c", "test") == targets_hash(layout.rows[wanted[0]], "c", "test")


@given(lengths=st.lists(st.integers(40, 400), min_size=2, max_size=8), budget=st.integers(2, 60))
def test_targets_are_spread_evenly_over_documents(lengths: list[int], budget: int) -> None:
    """No document gives two blocks more than another that has more to give."""
    layout = protocols["fixed-target"]().layout(np.array(lengths), 4, [4, 16], 2 * budget)
    blocks = Counter(int(d) for d in layout.control[0].document_W)
    available = {d: (n - 1 - 16) // 2 + 1 for d, n in enumerate(lengths)}
    assert sum(blocks.values()) == min(budget, sum(available.values()))
    for d in available:
        assert blocks[d] == available[d] or blocks[d] >= max(blocks.values()) - 1


def test_fractions_that_give_whole_lengths() -> None:
    assert lengths_of([2, 0.5, 1, 1.5], 64) == [32, 64, 96, 128]
    assert lengths_of([0.1], 10) == [1]


@pytest.mark.parametrize(
    ("factors", "message"),
    [([0.0], "positive"), ([-2.0], "positive"), ([math.nan], "positive"), ([1.01], "whole"), ([], "at least one")],
)
def test_factors_that_are_refused(factors: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lengths_of(factors, 64)


@pytest.mark.parametrize(
    ("available", "most", "apart", "places"),
    [
        (11, 2, 3, [3, 6]),  # 3 places before them, 4 after
        (11, 3, 5, [0, 5, 10]),  # just enough room
        (11, 3, 6, [0, 3, 7]),  # not enough: as even as can be
        (11, 1, 4, [5]),
        (11, 4, None, [0, 2, 5, 8]),
    ],
)
def test_places_so_far_apart_are_in_the_middle_of_their_document(available, most, apart, places) -> None:
    documents, found = spread(np.array([0, available]), most, apart)
    assert documents.tolist() == [1] * most
    assert found.tolist() == places


@pytest.mark.parametrize(
    ("protocol", "tokens", "most", "message"),
    [
        ("windows", 64, 63, "`max_targets=63` holds no span of 64"),
        ("windows", 64, 1000, "a span of 64 tokens and its next: the longest has 64; .*`min_heldout_tokens=65`"),
        ("fixed-target", 1000, 1, "`max_targets=1` holds no block of 2"),
        ("fixed-target", 64, 1000, "a window of 64 tokens and its next: the longest has 64; .*`min_heldout_tokens=65`"),
    ],
)
def test_text_or_a_budget_that_holds_nothing_is_refused(protocol: str, tokens: int, most: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        protocols[protocol]().layout(np.array([tokens]), 4, [4, 64], most)


def test_the_hash_tells_targets_corpus_and_split_apart() -> None:
    base = protocols["windows"]().layout(np.array([100]), 4, [4, 8], 1000).control
    other = protocols["windows"]().layout(np.array([101]), 4, [4, 8], 96 - 8).control
    hashes = {
        targets_hash(base, "c", "test"),
        targets_hash(other, "c", "test"),
        targets_hash(base, "d", "test"),
        targets_hash(base, "c", "validation"),
    }
    assert len(hashes) == 4


FACTORS, L, MOST = (1, 2, 4), 16, 1024


def slow_losses(run: Run, store: Store, groups: tuple[Windows, ...]) -> dict[Target, float]:
    """Every target's loss, nats: one window at a time through the model, all logits, one target after the other."""
    split, model = store.split("test"), run.load_model(run.checkpoints("last")[0])
    losses = {}
    context = context_of(groups)
    starts = {(d, p - inputs) for (d, p), inputs in context.items()}
    for document, start in starts:
        first = int(split.offsets[document]) + start
        length = max(p - start for (d, p), inputs in context.items() if (d, p - inputs) == (document, start))
        tokens = torch.from_numpy(split.slice(first, first + length + 1).astype(np.int64))
        with torch.no_grad():
            log_probabilities_TV = model(tokens[None, :-1])[0].double().log_softmax(-1)
        for offset in range(length):
            target = document, start + offset + 1
            if context.get(target) == offset + 1:
                losses[target] = -float(log_probabilities_TV[offset, tokens[offset + 1]])
    return losses


@pytest.fixture(scope="module")
def tables(trained: Path, tmp_path_factory: pytest.TempPathFactory):
    """A run evaluated by the command under every protocol, and the two tables that it wrote."""
    folder = shutil.copytree(trained / "expe", tmp_path_factory.mktemp("protocols") / "expe")
    flags = ["--protocol", ",".join(protocols.names()), "--factors", "1,2,4", "--max-targets", str(MOST)]
    with pytest.raises(SystemExit) as ended:
        main(["eval-lengths", str(folder), *flags])
    assert not ended.value.code
    return Run.open(folder), xt.rows(folder), xt.rows(folder, "documents")


@pytest.mark.parametrize("protocol", protocols.names())
def test_the_tables_on_disk_hold_the_losses_of_a_slow_implementation(tables, store: Path, protocol: str) -> None:
    """Of every stretch of every document, at every factor and for the control."""
    run, evals, documents = tables
    opened = Store.open(store)
    split = opened.split("test")
    layout = protocols[protocol]().layout(split.lengths, L, [f * L for f in FACTORS], MOST)
    control = slow_losses(run, opened, layout.control)
    assert set(evals[evals["protocol"] == protocol]["factor"]) == set(FACTORS)
    for factor in FACTORS:
        losses = slow_losses(run, opened, layout.rows[factor * L])
        assert set(losses) == set(control)
        row = evals[(evals["protocol"] == protocol) & (evals["factor"] == factor)].iloc[0]
        mine = documents[(documents["protocol"] == protocol) & (documents["factor"] == factor)]
        assert row["loss"] == pytest.approx(np.mean([*losses.values()]), abs=1e-5)
        assert row["control_loss"] == pytest.approx(np.mean([*control.values()]), abs=1e-5)
        assert row["n_targets"] == len(losses) == mine["n_targets"].sum()
        for column in ("loss", "control_loss"):
            assert row[column] == pytest.approx((mine[column] * mine["n_targets"]).sum() / row["n_targets"], abs=1e-9)
        index = {  # of the last input before each target, in its window
            (int(d), int(start) + i + 1): i
            for group in layout.rows[factor * L]
            for d, start in zip(group.document_W, group.start_W, strict=True)
            for i in range(group.length - group.scored, group.length)
        }
        found = mine.set_index(["document", "block", "position"])
        assert protocol not in IN_WORDS or mine["block"].max() > 0
        for column, expected in (("loss", losses), ("control_loss", control)):
            cells = defaultdict(list)  # stretches of 16 L in which the window begins, buckets of L/2 for the last input
            for (document, place), loss in expected.items():
                inside = index[document, place]
                start, bucket = place - 1 - inside, inside // (L // 2) * (L // 2)
                cells[split.ids[document], start // (16 * L), bucket].append(loss)
            assert set(found.index) == set(cells)
            for where, own in cells.items():
                assert found.loc[where, "n_targets"] == len(own)
                assert found.loc[where, column] == pytest.approx(np.mean(own), abs=1e-5)


@pytest.mark.parametrize("protocol", protocols.names())
def test_targets_and_bytes_are_those_of_the_documents_text(tables, store: Path, corpus: Path, protocol: str) -> None:
    _, evals, documents = tables
    opened = Store.open(store)
    split, tokenizer = opened.split("test"), opened.tokenizer()
    layout = protocols[protocol]().layout(split.lengths, L, [f * L for f in FACTORS], MOST)
    texts: Counter[int] = Counter()
    for d in {d for d, _ in targets_of(layout.control)}:
        places = sorted(p for document, p in targets_of(layout.control) if document == d)
        tokens = split.slice(int(split.offsets[d]), int(split.offsets[d + 1]))
        whole = (corpus / split.ids[d]).read_text(encoding="utf-8")
        for run_of_places in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1):
            text = tokenizer.decode([int(tokens[p]) for p in run_of_places])
            before = tokenizer.decode([int(t) for t in tokens[: run_of_places[0]]])
            assert whole.startswith(before + text), "these tokens are not those of the document's text"
            texts[d] += len(text.encode())
    for row in evals[evals["protocol"] == protocol].itertuples():
        assert (row.n_targets, row.n_documents) == (sum(targets_of(layout.control).values()), len(texts))
        assert row.n_bytes == sum(texts.values())
        mine = documents[(documents["protocol"] == protocol) & (documents["factor"] == row.factor)]
        assert mine.groupby("document")["n_bytes"].sum().to_dict() == {split.ids[d]: n for d, n in texts.items()}
        assert row.bits_per_byte == pytest.approx(row.loss * row.n_targets / math.log(2) / sum(texts.values()))
