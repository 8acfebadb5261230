import pytest
import torch

from extrapolate.benchmark import training as benchmark
from extrapolate.benchmark.training import Speed, Variant, bench_config
from extrapolate.cli.bench import training as shown


def small(dropout: float = 0.0):
    made = bench_config("tiny", 8)
    sizes = made.model.model_copy(
        update={"vocab_size": 64, "width": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16, "ff_width": 48}
        | {"dropout": dropout}
    )
    return made.model_copy(update={"model": sizes})


def test_a_group_is_one_mode_and_the_floor() -> None:
    groups = benchmark.groups(small(), peer=True, compiled=True)
    assert len(groups) == 4
    for group in groups:
        assert [variant.who for variant in group] == ["extrapolate", "transformers", "floor"]
        assert len({(v.precision, v.compiled) for v in group[:2]}) == 1
        assert group[2].precision == group[0].precision
    with_dropout = benchmark.groups(small(0.1), peer=False, compiled=False)
    assert [[v.dropout for v in group if v.who == "extrapolate"] for group in with_dropout] == [[False], [True]] * 2


@pytest.mark.usefixtures("quick_measurements")
def test_variants_take_turns_and_have_as_many_steps() -> None:
    speeds = benchmark.measure(small(), [Variant("extrapolate", "fp32"), Variant("floor", "fp32")], 0.01, beside=1)
    assert len({len(speed.seconds) for speed in speeds.values()}) == 1
    assert all(len(speed.seconds) >= benchmark.LEAST_ROUNDS for speed in speeds.values())
    assert all(len(speed.busy_seconds) >= benchmark.LEAST_ROUNDS for speed in speeds.values())
    assert all(speed.taken is None or 0 <= speed.taken <= 1 for speed in speeds.values())


def test_a_ratio_is_of_the_same_rounds() -> None:
    """The machine was ten times as slow in one round: that changes the median step, and no ratio."""
    ours, theirs = Speed([1.0, 10.0, 1.0], 100, 0.0, None), Speed([2.0, 20.0, 2.0], 100, 0.0, None)
    assert ours.times_as_fast_as(theirs) == 2.0
    assert ours.tokens_per_s == 100
    assert ours.busy_tokens_per_s is None


def test_steps_beside_busy_programs_have_a_column_and_change_nothing_else() -> None:
    quiet = Speed([1.0], 100, 0.0, 0.0)
    loud = Speed([1.0], 100, 0.0, 0.0, busy_seconds=[4.0])
    (before,) = shown.rows_of({Variant("floor", "fp32"): quiet}, with_dropout=False)
    (row,) = shown.rows_of({Variant("floor", "fp32"): loud}, with_dropout=False, busy=2)
    assert row.pop("tokens/s beside 2 busy") == "25"
    assert row == before


def test_on_a_busy_machine_ratios_are_not_shown() -> None:
    quiet, busy = Speed([1.0], 10, 1.0, 0.01), Speed([2.0], 10, 1.0, 0.3)
    rows = shown.rows_of({Variant("extrapolate", "fp32"): quiet, Variant("floor", "fp32"): quiet}, with_dropout=False)
    assert [row["of floor"] for row in rows] == ["1.00", "1.00"]
    rows = shown.rows_of({Variant("extrapolate", "fp32"): quiet, Variant("floor", "fp32"): busy}, with_dropout=False)
    assert [row["of floor"] for row in rows] == ["n/a", "n/a"]
    assert rows[1]["taken by others"] == "30%"


def test_the_peer_gets_our_dropout() -> None:
    """Its embedding, and what attention and the feed-forward network add, as in our model."""
    pytest.importorskip("transformers")
    config = small(0.5)
    model = benchmark.transformers_llama(config.model, 8)
    tokens = torch.randint(0, 64, (1, 8))
    assert torch.equal(model(input_ids=tokens).logits, model(input_ids=tokens).logits)
    benchmark._drop(model, 0.5)
    assert not torch.equal(model(input_ids=tokens).logits, model(input_ids=tokens).logits)
    outputs = []
    for name, module in model.named_modules():
        if name.endswith(("embed_tokens", "self_attn", "mlp")):
            module.register_forward_hook(lambda _, __, output: outputs.append(output))
    model(input_ids=tokens)
    assert len(outputs) == 1 + 2 * config.model.layers
    for output in outputs:
        first = output[0] if isinstance(output, tuple) else output
        assert 0.2 < (first == 0).float().mean() < 0.8
