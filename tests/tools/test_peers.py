"""What is measured beside other programs is the same work, and busy programs end with the one that started them."""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("lm_eval")

import busy
import evaluation_speed
import startup_speed
import tokenizing_speed
import training_speed

from extrapolate.data.documents import Document
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.machine.children import worker

PEERS = Path(__file__).parents[2] / "tools" / "peers"
TOKENS = 2048


@pytest.mark.usefixtures("quick_measurements")
def test_training_is_beside_its_peer_and_a_busy_program(small_bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_speed, "bench_config", lambda preset, seq_len: small_bench())
    options = argparse.Namespace(preset=["tiny"], seq_len=8, no_compile=True, seconds=0.01, busy=1)
    rows = list(training_speed.rows(options))
    assert [(row["who"], row["mode"]) for row in rows] == [
        (who, f"{precision} eager") for precision in ("fp32", "bf16") for who in ("extrapolate", "transformers")
    ]
    assert all(row["beside 1 busy"] for row in rows)


def test_the_peer_gets_our_dropout(small_bench) -> None:
    """Its embedding, and what attention and the feed-forward network add, as in our model."""
    config = small_bench(dropout=0.5)
    model = training_speed.transformers_llama(config.model, 8)
    tokens = torch.randint(0, 64, (1, 8))
    assert torch.equal(model(input_ids=tokens).logits, model(input_ids=tokens).logits)
    training_speed.drop(model, 0.5)
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


@pytest.mark.parametrize("protocol", protocols.names())
def test_ours_and_a_plain_loop_have_equal_losses(small_bench, protocol: str) -> None:
    ours, control, plain = (
        evaluation_speed.measure(small_bench(), evaluation_speed.Variant(who, protocol, "fp32"), TOKENS)
        for who in ("extrapolate", "extrapolate and control", "plain loop")
    )
    assert len(ours.losses) == len(evaluation_speed.FACTORS)
    assert ours.furthest(control) < 1e-6
    assert ours.furthest(plain) < 1e-5


def test_the_rate_is_of_the_scored_tokens_of_all_factors(small_bench) -> None:
    cost = evaluation_speed.measure(
        small_bench(), evaluation_speed.Variant("extrapolate", "windows", "fp32"), TOKENS, beside=1
    )
    assert cost.tokens == len(evaluation_speed.FACTORS) * TOKENS
    assert cost.tokens_per_s * cost.seconds == pytest.approx(cost.tokens)
    assert cost.busy_seconds is not None


def test_lm_eval_rolls_over_the_same_documents(small_bench) -> None:
    """Its windows begin with a token of its own, so that losses are near, not equal."""
    ours = evaluation_speed.measure(small_bench(), evaluation_speed.Variant("extrapolate", "windows", "fp32"), TOKENS)
    rolled = evaluation_speed.measure(
        small_bench(), evaluation_speed.Variant("lm-eval rolling", "windows", "fp32"), TOKENS
    )
    assert 0 < ours.furthest(rolled) < 0.1


def test_a_window_of_32_768_tokens_takes_little_memory(small_bench) -> None:
    """A single [N, N] of float32 would be 4 GiB."""
    with worker() as process:
        cost = process.submit(evaluation_speed.long_window, small_bench()).result()
    assert evaluation_speed.LONG_WINDOW == 32_768
    assert cost.peak_mib < 2048


@pytest.fixture
def small_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing_speed, "VOCAB_SIZE", 270)


@pytest.mark.usefixtures("small_vocabulary")
def test_a_short_source_is_said_again_in_other_words(tmp_path: Path) -> None:
    documents = [Document(str(n), "".join(f"line {n} of {m} here\n" for m in range(40))) for n in range(5)]
    size = tokenizing_speed._prepare(documents, 10_000, tmp_path)
    texts = pq.read_table(tmp_path / "texts.parquet").column("text").to_pylist()
    assert 10_000 <= size == sum(map(len, texts)) < 11_000
    assert texts[:5] == [document.text for document in documents]
    assert len(set(texts)) == len(texts)  # a store takes no document twice


@pytest.mark.usefixtures("small_vocabulary")
def test_tokenising_is_measured(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"{n}.txt").write_text("".join(f"line {m} of {n}\n" for m in range(400)))
    chosen = [tokenizing_speed.Variant("extrapolate", 1), tokenizing_speed.Variant("datasets", 1, 16)]
    measured = tokenizing_speed.measure(str(tmp_path), 0.02, chosen, beside=1)
    assert list(measured) == chosen
    for speed in measured.values():
        assert speed.mb_per_s > 0
        assert speed.peak_mib > 20
        assert speed.busy_mb_per_s


def test_start_up_is_beside_python_and_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [startup_speed.FLOOR, startup_speed.OURS[0], startup_speed.TORCH]
    monkeypatch.setattr(startup_speed, "PROGRAMS", programs)
    floor, ours, with_torch = startup_speed.rows(argparse.Namespace(rounds=2, busy=1))
    assert (floor["of floor"], with_torch["of the peer"], ours["of the peer"]) == (1, 1, None)
    assert ours["of floor"] < 1
    assert ours["beside 1 busy"] > 0
    monkeypatch.setattr(startup_speed, "PROGRAMS", [["-c", "raise SystemExit(1)"]])
    with pytest.raises(subprocess.CalledProcessError):
        next(startup_speed.rows(argparse.Namespace(rounds=1, busy=0)))


def test_a_part_that_fails_leaves_the_others() -> None:
    command = [sys.executable, str(PEERS), "tokenising", "start-up", "--rounds", "1", "--busy", "0"]
    done = subprocess.run([*command, "--source", "nowhere"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "tokenising: UserError: " in done.stderr.splitlines()[-1]
    assert "| start-up, s | extrapolate | train --help |" in done.stdout


STARTER = """
import signal, sys, time
sys.path.append(sys.argv[1])
import busy
signal.signal(signal.SIGINT, signal.default_int_handler)
with busy.programs(2) as ids:
    print(*ids, flush=True)
    time.sleep(60)
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end_of(ids: list[int]) -> bool:
    """Waits for it."""
    until = time.monotonic() + 20
    while any(map(runs, ids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(runs, ids))


def ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_they_compute_until_the_end_of_the_with() -> None:
    with busy.programs(2) as ids:
        assert len(set(ids)) == 2
        before, until = [ticks(pid) for pid in ids], time.monotonic() + 20
        while any(ticks(pid) <= first for pid, first in zip(ids, before, strict=True)) and time.monotonic() < until:
            time.sleep(0.02)
        assert all(ticks(pid) > first for pid, first in zip(ids, before, strict=True))
    assert not any(map(runs, ids))
    with pytest.raises(ZeroDivisionError), busy.programs(1) as ids:
        raise ZeroDivisionError
    assert not any(map(runs, ids))
    with busy.programs(0) as ids:
        assert ids == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_they_end_with_the_program_that_started_them(number: signal.Signals) -> None:
    """Ctrl-C reaches all programs of a terminal's command; a kill that one alone."""
    starter = [sys.executable, "-c", STARTER, PEERS]
    with subprocess.Popen(
        starter, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as started:
        assert started.stdout is not None
        ids = [int(word) for word in started.stdout.readline().split()]
        assert len(ids) == 2
        assert all(map(runs, ids))
        (os.killpg if number == signal.SIGINT else os.kill)(started.pid, number)
        started.wait(20)
        assert end_of(ids)
