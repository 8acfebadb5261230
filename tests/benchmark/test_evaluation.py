"""What is timed is the same work: equal losses on the same tokens; and a long window in linear memory."""

import importlib.util

import pytest

from extrapolate.benchmark import evaluation as benchmark
from extrapolate.benchmark.evaluation import Variant
from extrapolate.benchmark.training import bench_config
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.runs.config import TrainedConfig

TOKENS = 2048


@pytest.fixture(scope="module")
def config() -> TrainedConfig:
    """Two small layers at L = 8."""
    made = bench_config("tiny", 8)
    sizes = made.model.model_copy(
        update={"vocab_size": 64, "width": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16, "ff_width": 48}
    )
    return made.model_copy(update={"model": sizes})


@pytest.mark.parametrize("protocol", protocols.names())
def test_ours_and_a_plain_loop_have_equal_losses(protocol: str, config: TrainedConfig) -> None:
    ours, control, plain = (
        benchmark._measure(config, Variant(who, protocol, "fp32"), TOKENS)
        for who in ("extrapolate", "extrapolate and control", "plain loop")
    )
    assert len(ours.losses) == len(benchmark.FACTORS)
    assert ours.furthest(control) < 1e-6
    assert ours.furthest(plain) < 1e-5


def test_the_rate_is_of_the_scored_tokens_of_all_factors(config: TrainedConfig) -> None:
    cost = benchmark._measure(config, Variant("extrapolate", "windows", "fp32"), TOKENS, beside=1)
    assert cost.tokens == len(benchmark.FACTORS) * TOKENS
    assert cost.tokens_per_s * cost.seconds == pytest.approx(cost.tokens)
    assert cost.busy_seconds is not None
    assert cost.busy_tokens_per_s == cost.tokens / cost.busy_seconds


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="needs lm-eval")
def test_lm_eval_rolls_over_the_same_documents(config: TrainedConfig) -> None:
    """Its windows begin with a token of its own, so that losses are near, not equal."""
    ours = benchmark._measure(config, Variant("extrapolate", "windows", "fp32"), TOKENS)
    rolled = benchmark._measure(config, Variant("lm-eval rolling", "windows", "fp32"), TOKENS)
    assert 0 < ours.furthest(rolled) < 0.1


def test_what_is_missing_is_not_measured() -> None:
    everything = benchmark.variants(["transformers", "lm_eval"], ["windows", "sliding"], ["fp32", "bf16"])
    assert len(everything) == 2 * 2 * 3 + 1
    alone = benchmark.variants([], ["windows"], ["fp32"])
    assert {variant.who for variant in alone} == {"extrapolate", "extrapolate and control"}
    assert all(
        v.who != "lm-eval rolling" for v in benchmark.variants(["transformers", "lm_eval"], ["sliding"], ["fp32"])
    )


def test_a_window_of_32_768_tokens_takes_little_memory(config: TrainedConfig) -> None:
    """A single [N, N] of float32 would be 4 GiB."""
    cost = benchmark.long_window(config)
    assert benchmark.LONG_WINDOW == 32_768
    assert cost.peak_mib < 2048
