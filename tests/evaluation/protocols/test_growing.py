"""The protocol `growing`: each piece of a text under the plan of its own length, against one window after the other."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.evaluation import lengths as evaluation
from extrapolate.evaluation.lengths import evaluate
from extrapolate.evaluation.memory import MEMORY, OutOfMemoryError
from extrapolate.evaluation.protocols.base import CONTROL, Windows, parse_protocol
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.window_losses import measure
from extrapolate.evaluation.work import work_of
from extrapolate.extensions import stack as stacks
from extrapolate.runs.run import Run

L = 16


@pytest.fixture(scope="module")
def store(word_store: Store) -> Store:
    return word_store


def settings_of(*protocols: str, extend: tuple[str, ...] = (), factors=(1, 2, 4), most: int = 256, **more):
    return EvaluationSettings(factors, extend, protocols=protocols, max_targets=most, **more)


def rows_of(run: Run, store: Store, settings: EvaluationSettings) -> tuple[pd.DataFrame, pd.DataFrame]:
    pieces = list(evaluate(work_of(run, store, settings)))
    rows, targets = (
        pd.DataFrame([row for piece in pieces for row in piece[0]]),
        [piece[2].to_pandas() for piece in pieces],
    )
    return rows, pd.concat(targets)


def places(groups: tuple[Windows, ...]) -> dict[tuple[int, int], tuple[int, int]]:
    """Every target's document and place: where its window starts, and its length."""
    found = {}
    for group in groups:
        for document, start in zip(group.document_W.tolist(), group.start_W.tolist(), strict=True):
            for place in range(start + group.length - group.scored + 1, start + group.length + 1):
                assert (document, place) not in found, "a target is scored twice"
                found[document, place] = start, group.length
    return found


@pytest.mark.parametrize(
    ("text", "seq_len", "lengths", "step"),
    [
        ("growing", 4, [4, 8, 16], 4),
        ("growing:step=2", 4, [4, 8], 2),
        ("growing:step=1", 3, [3, 9], 1),
        ("growing", 8, [4, 8, 32], 4),
        ("growing", 6, [9], 3),
        ("growing", 4, [8], 4),
        ("growing:step=8", 4, [8, 16], 8),
    ],
)
def test_windows_and_targets_by_a_walk(text: str, seq_len: int, lengths: list[int], step: int) -> None:
    """Targets and control of `windows`; each target in the first of its window's lengths that holds it."""
    documents = np.array([150, 7, 99])
    layout, plain = (parse_protocol(one).layout(documents, seq_len, lengths, 400) for one in (text, "windows"))
    assert places(layout.control) == places(plain.control)
    for length in lengths:
        expected = {}
        for (document, place), (start, _) in places(plain.rows[length]).items():
            end = step
            while place > start + end:
                end += step
            expected[document, place] = start, end
        assert places(layout.rows[length]) == expected
    assert layout.plan_lengths() == list(range(step, max(lengths) + 1, step))
    by_key = layout.by_key()
    assert by_key.keys() == {CONTROL} | {(row, n) for row in lengths for n in range(step, row + 1, step)}
    for row in lengths:
        assert [group for key in layout.keys_of(row) for group in by_key[key]] == list(layout.rows[row])
        assert layout.beginning_with(5).keys_of(row) == layout.keys_of(row)


@pytest.mark.parametrize(
    ("text", "lengths", "message"),
    [
        ("growing:step=0", [4], "growing: step must be at least 1, not 0"),
        ("growing:step=3", [4, 8], "growing: step=3 does not divide an evaluation length of 4 tokens"),
        ("growing", [4, 400], "no held-out document holds a span of 400"),
    ],
)
def test_what_is_refused(text: str, lengths: list[int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_protocol(text).layout(np.array([150]), 4, lengths, 4000)


@pytest.mark.parametrize(
    ("pe", "extension"),
    [("rope", "as-trained"), ("alibi", "as-trained"), ("rope", "pi:factor=4"), ("rope", "ntk:factor=4")],
)
def test_what_does_not_depend_on_the_length_is_windows_exactly_at_its_cost(
    store: Store, random_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, pe: str, extension: str
) -> None:
    inputs = []

    def noted(*arguments, **options):
        found = measure(*arguments, **options)
        inputs.append(sum(one.inputs for one in found.values()))
        return found

    monkeypatch.setattr(evaluation, "measure", noted)
    run, costs, tables = random_run(store, pe), [], []
    for protocol in ("windows", "growing", "growing:step=4"):
        inputs.clear()
        extend = () if extension == "as-trained" else (extension,)
        rows, _ = rows_of(run, store, settings_of(protocol, extend=extend))
        costs.append(sum(inputs))
        tables.append(rows[["extension", "factor", "loss", "control_loss", "plan_hash", "targets_hash", "n_targets"]])
    assert costs[0] == costs[1] == costs[2]
    assert tables[0]["plan_hash"].notna().all()
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0], check_exact=True)


def naive(run: Run, store: Store, plan_of: Callable[[int], Plan], row: int, step: int) -> dict[tuple[str, int], float]:
    """The loss of every target: one window at a time through the model, with the plan of its own length."""
    split, model = store.split("test"), run.load_model(run.checkpoints("last")[0])
    losses = {}
    starts = {
        (d, start)
        for (d, _), (start, _) in places(settings_of("windows").layout("windows", split, L).rows[row]).items()
    }
    for document, start in starts:
        first = int(split.offsets[document]) + start
        for length in range(step, row + 1, step):
            tokens = torch.from_numpy(split.slice(first, first + length + 1).astype(np.int64))
            with torch.no_grad():
                log_probabilities_TV = model(tokens[None, :-1], plan_of(length))[0].double().log_softmax(-1)
            for offset in range(length - step, length):
                losses[split.ids[document], start + offset + 1] = -float(
                    log_probabilities_TV[offset, tokens[offset + 1]]
                )
    return losses


@pytest.mark.parametrize(
    ("extension", "protocol", "step"),
    [
        ("dynamic-ntk", "growing", L),
        ("yarn", "growing:step=8", 8),
        ("temperature:c=0.4", "growing", L),
        ("pi", "growing", L),
    ],
)
def test_each_piece_has_the_plan_of_its_length(
    store: Store, random_run: Callable[..., Run], extension: str, protocol: str, step: int
) -> None:
    run = random_run(store, "rope")
    rows, targets = rows_of(run, store, settings_of("windows", protocol, extend=(extension,), keep_losses=True))
    model, stack = run.build_model(), stacks.parse(extension)
    losses = rows[rows["extension"] == extension].set_index(["protocol", "factor"])["loss"]
    for factor in (1, 2, 4):
        expected = naive(run, store, lambda n: stack.plan(model.encoding, L, n), factor * L, step)
        assert losses[protocol, factor] == pytest.approx(np.mean([*expected.values()]), rel=1e-5)
        mine = targets[
            (targets["protocol"] == protocol) & (targets["extension"] == extension) & (targets["factor"] == factor)
        ]
        assert len(mine) == len(expected)
        for row in mine.itertuples():
            assert row.loss == pytest.approx(expected[row.document, row.place], rel=1e-4, abs=1e-5)
        # At 1x every plan is that of L; beyond, one late table for all tokens gives other numbers.
        assert (losses[protocol, factor] == losses["windows", factor]) == (factor == 1)
    grown = rows[(rows["extension"] == extension) & (rows["protocol"] == protocol)].set_index("factor")
    assert grown["plan_hash"].notna().tolist() == [True, False, False]
    plain = rows[rows["extension"] == "as-trained"].set_index(["protocol", "factor"])["loss"]
    assert plain[protocol].tolist() == plain["windows"].tolist()  # one evaluation has both, and mixes neither up


def test_log_n_is_that_of_windows_to_rounding(store: Store, random_run: Callable[..., Run]) -> None:
    """Its factor follows from a query's own index: two plans, and the same numbers."""
    rows, _ = rows_of(random_run(store, "rope"), store, settings_of("windows", "growing", extend=("log-n",)))
    losses = rows[rows["extension"] == "log-n"].set_index(["protocol", "factor"])["loss"]
    assert losses["growing"].tolist() == pytest.approx(losses["windows"].tolist(), rel=1e-6)


def test_positions_that_depend_on_the_length_do_so_without_an_extension(
    store: Store, random_run: Callable[..., Run]
) -> None:
    run = random_run(store, "rfs")
    rows, _ = rows_of(run, store, settings_of("windows", "growing"))
    losses = rows.set_index(["protocol", "factor"])["loss"]
    assert rows["plan_hash"].isna().all()
    for factor in (1, 2, 4):
        expected = naive(run, store, lambda n: PLAIN, factor * L, L)
        assert losses["growing", factor] == pytest.approx(np.mean([*expected.values()]), rel=1e-5)
    assert losses["growing", 4] != pytest.approx(losses["windows", 4], rel=1e-4)


def test_a_length_that_the_encoding_does_not_reach_is_not_there(store: Store, random_run: Callable[..., Run]) -> None:
    rows, _ = rows_of(random_run(store, "learned"), store, settings_of("growing"))
    assert rows["loss"].notna().tolist() == [True, False, False]
    assert "not defined at 64 tokens" in rows["reason"].iloc[-1]


def test_a_row_with_one_length_that_memory_does_not_suffice_for_is_not_there(
    store: Store, random_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(model, split, wanted, plan, **options):
        if any(group.length == 4 * L for groups in wanted.values() for group in groups):
            raise OutOfMemoryError(4 * L, "")
        return measure(model, split, wanted, plan, **options)

    monkeypatch.setattr(evaluation, "measure", measured)
    rows, _ = rows_of(random_run(store, "rope"), store, settings_of("growing", extend=("dynamic-ntk",)))
    assert rows["loss"].notna().tolist() == [True, True, False] * 2
    assert rows["reason"].fillna("").tolist() == ["", "", MEMORY] * 2


def test_lengths_that_share_a_plan_are_computed_once_and_progress_says_so(
    store: Store, random_run: Callable[..., Run]
) -> None:
    run = random_run(store, "rope")
    settings = settings_of("growing", extend=("dynamic-ntk", "temperature"))
    told: list[float] = []
    work = work_of(run, store, settings)
    list(evaluate(work, progress=lambda what, inputs, loss=0.0: told.append(inputs)))
    assert sum(told) == pytest.approx(work.inputs(work.items).total())
