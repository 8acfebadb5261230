"""How fast a five-factor evaluation is beside a plain loop over transformers and lm-eval's rolling likelihood.

Each variant runs in a process of its own. All score the same targets of the same random tokens with the same weights
of a tiny model, and their mean losses are compared.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import busy
import numpy as np
import torch
import torch.nn.functional as F
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers import Tokenizer, models
from torch import nn
from training_speed import transformers_llama
from transformers import PreTrainedTokenizerFast

from extrapolate.benchmark import bench_config
from extrapolate.data.store import Split
from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation.losses import BATCH_TOKENS
from extrapolate.evaluation.protocols.base import CONTROL, Layout, Windows, protocols
from extrapolate.evaluation.window_losses import joined, prefixes_agree
from extrapolate.evaluation.window_losses import measure as measure_windows
from extrapolate.machine.children import worker
from extrapolate.machine.memory import keep_freed_memory, lifetime_peak_mib
from extrapolate.model.model import Model
from extrapolate.runs.config import TrainedConfig

PRESET = "tiny"
FACTORS = (1, 2, 4, 8, 16)
DOCUMENTS = 8
LONG_WINDOW = 32_768
ENOUGH_S = 10.0  # what takes less is timed up to three times
SHARES = {"windows": 1.0, "fixed-target": 1 / 32}  # of the tokens that are targets; 1/16 of another protocol's


@dataclass(frozen=True)
class Variant:
    """What is measured."""

    who: str
    protocol: str
    precision: str


@dataclass(frozen=True)
class Cost:
    """The median of the seconds for all factors, the process's peak memory in MiB, each factor's mean loss, how many
    tokens of all factors were scored, without the control's, and the seconds beside busy programs."""

    seconds: float
    peak_mib: float
    losses: tuple[float, ...]
    tokens: int
    busy_seconds: float | None = None

    @property
    def tokens_per_s(self) -> float:
        """In the quiet rounds."""
        return self.tokens / self.seconds

    def furthest(self, other: "Cost") -> float:
        """The largest difference in loss at any factor, nats."""
        return max(abs(mine - theirs) for mine, theirs in zip(self.losses, other.losses, strict=True))


def rows(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """A row for each program, protocol and precision; the peer of each is the plain loop."""
    config = bench_config(PRESET, options.seq_len)
    for protocol in options.protocol:
        for precision in options.precision:
            whose = ["plain loop", "extrapolate", "extrapolate and control"]
            whose += ["lm-eval rolling"] if (protocol, precision) == ("windows", "fp32") else []
            costs: dict[str, Cost] = {}
            for who in whose:
                variant = Variant(who, protocol, precision)
                with worker() as process:
                    cost = process.submit(measure, config, variant, options.tokens, options.busy).result()
                costs[who] = cost
                yield {
                    "what": f"evaluation {PRESET}, tokens/s", "who": who, "mode": f"{protocol} {precision}",
                    "speed": cost.tokens_per_s,
                    "of the peer": cost.tokens_per_s / costs["plain loop"].tokens_per_s,
                    f"beside {options.busy} busy": cost.busy_seconds and cost.tokens / cost.busy_seconds,
                    "peak MiB": cost.peak_mib,
                    "difference in loss": cost.furthest(costs["plain loop"]),
                }  # fmt: skip
    with worker() as process:
        cost = process.submit(long_window, config).result()
    yield {
        "what": f"evaluation {PRESET}, tokens/s", "who": "extrapolate", "mode": f"one window of {LONG_WINDOW:,}",
        "speed": cost.tokens_per_s, "peak MiB": cost.peak_mib,
    }  # fmt: skip


class RandomTokens(Split):
    """Documents of random tokens, in memory."""

    def __init__(self, documents: int, length: int, vocab_size: int) -> None:
        super().__init__("random", [])
        self.tokens = np.random.default_rng(0).integers(0, vocab_size, documents * (length + 1)).astype(np.int64)
        self.ids = [str(i) for i in range(documents)]
        self.offsets = np.arange(documents + 1) * (length + 1)

    def slice(self, start: int, end: int) -> np.ndarray:
        return self.tokens[start:end]


def measure(config: TrainedConfig, variant: Variant, tokens: int, beside: int = 0) -> Cost:
    """Measures a variant on `tokens` tokens of `windows`, fewer of other protocols; then beside busy programs."""
    prepare = {"plain loop": _plain_loop, "lm-eval rolling": _lm_eval}.get(variant.who, _ours)
    prepare(config, variant, *_work(config, variant, _least_tokens(config)))()  # the first calls of a kind are slower
    split, layout = _work(config, variant, max(tokens, _least_tokens(config)))
    score = prepare(config, variant, split, layout)
    seconds, losses = _median_seconds(score)
    peak = lifetime_peak_mib()
    with busy.programs(beside):
        loud = _median_seconds(score)[0] if beside else None
    return Cost(seconds, peak, losses, _scored(variant, split, layout), loud)


def _median_seconds(score: Callable[[], tuple[float, ...]]) -> tuple[float, tuple[float, ...]]:
    times: list[float] = []
    while len(times) < 3 and sum(times) < ENOUGH_S:
        began = time.perf_counter()
        losses = score()
        times.append(time.perf_counter() - began)
    return statistics.median(times), losses


def _scored(variant: Variant, split: Split, layout: Layout) -> int:
    """How many tokens of all factors are scored; lm-eval scores every token of the documents for each."""
    if variant.who == "lm-eval rolling":
        return len(layout.rows) * int(np.diff(split.offsets).sum() - len(split.ids))
    return sum(len(group.start_W) * group.scored for groups in layout.rows.values() for group in groups)


def _least_tokens(config: TrainedConfig) -> int:
    """The fewest tokens that hold a window of every factor."""
    return DOCUMENTS * (FACTORS[-1] * config.training.seq_len + 1)


def _work(config: TrainedConfig, variant: Variant, tokens: int) -> tuple[Split, Layout]:
    """What is to be scored."""
    seq_len = config.training.seq_len
    lengths = [factor * seq_len for factor in FACTORS]
    split = RandomTokens(DOCUMENTS, tokens // DOCUMENTS + 1, config.model.vocab_size)
    protocol = protocols[variant.protocol]()
    most = max(int(tokens * SHARES.get(variant.protocol, 1 / 16)), lengths[-1])
    return split, protocol.layout(split.lengths, seq_len, lengths, most)


def _model(config: TrainedConfig) -> Model:
    torch.manual_seed(0)
    model = Model(config.model, config.encoding.name, config.encoding.arguments, config.training.seq_len).eval()
    with torch.no_grad():  # losses that tell wrong targets
        model.head.weight.mul_(10)
    return model


def _ours(config: TrainedConfig, variant: Variant, split: Split, layout: Layout) -> Callable[[], tuple[float, ...]]:
    keep_freed_memory()
    model = _model(config)
    wanted = layout.by_key()
    if variant.who == "extrapolate":
        del wanted[CONTROL]

    def score() -> tuple[float, ...]:
        found = measure_windows(
            model, split, wanted, PLAIN, precision=variant.precision,
            share=prefixes_agree(model, PLAIN, list(layout.rows)),
            progress=lambda inputs, loss: None,
        )  # fmt: skip
        rows = [joined([(wanted[key], found[key]) for key in layout.keys_of(length)]) for length in layout.rows]
        return tuple(float(row.loss_N.mean(dtype=np.float64)) for row in rows)

    return score


def _plain_loop(
    config: TrainedConfig, variant: Variant, split: Split, layout: Layout
) -> Callable[[], tuple[float, ...]]:
    """Windows in batches of as many tokens as ours, through `transformers`: what anyone would write."""
    model = _peer(config, max(layout.rows))

    def score_group(group: Windows) -> float:
        total, size = 0.0, max(1, BATCH_TOKENS // group.length)
        for row in range(0, len(group.start_W), size):
            places = zip(group.document_W[row : row + size], group.start_W[row : row + size], strict=True)
            rows = [split.slice(split.offsets[d] + s, split.offsets[d] + s + group.length + 1) for d, s in places]
            tokens_BT = torch.from_numpy(np.stack(rows))
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=variant.precision == "bf16"):
                logits_BTV = model(input_ids=tokens_BT[:, :-1]).logits
            logits_NV = logits_BTV[:, -group.scored :].flatten(0, 1).float()
            total += F.cross_entropy(logits_NV, tokens_BT[:, -group.scored :].flatten(), reduction="sum").item()
        return total

    def score() -> tuple[float, ...]:
        return tuple(
            sum(map(score_group, groups)) / sum(len(group.start_W) * group.scored for group in groups)
            for groups in layout.rows.values()
        )

    return score


def _lm_eval(config: TrainedConfig, variant: Variant, split: Split, layout: Layout) -> Callable[[], tuple[float, ...]]:
    """lm-eval's rolling likelihood of whole documents, at each length."""
    documents = [split.slice(split.offsets[d], split.offsets[d + 1] - 1) for d in range(len(split.ids))]
    model: Any = _peer(config, max(layout.rows))

    class Tokens(HFLM):
        """Its texts are the numbers of documents, whose tokens are known."""

        def tok_encode(self, string: Any, *arguments: Any, **options: Any) -> Any:
            return documents[int(string)].tolist()

    judges = [
        Tokens(
            pretrained=model, tokenizer=_any_tokenizer(), max_length=length, device="cpu",
            batch_size=max(1, BATCH_TOKENS // length),
        )
        for length in layout.rows
    ]  # fmt: skip

    def score() -> tuple[float, ...]:
        requests = [Instance("loglikelihood_rolling", {}, (str(d),), d) for d in range(len(documents))]
        totals = [sum(judge.loglikelihood_rolling(requests, disable_tqdm=True)) for judge in judges]
        return tuple(-total / sum(map(len, documents)) for total in totals)

    return score


def _any_tokenizer() -> Any:
    inner = Tokenizer(models.WordLevel({"<eos>": 0}, unk_token="<eos>"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", bos_token="<eos>", pad_token="<eos>")


def _peer(config: TrainedConfig, max_length: int) -> nn.Module:
    """`transformers`' Llama with our model's weights."""
    ours, peer = _model(config), transformers_llama(config.model, max_length).eval()
    sizes = config.model
    queries, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    weights: dict[str, torch.Tensor] = {
        "model.embed_tokens.weight": ours.embedding.weight,
        "model.norm.weight": ours.norm.weight,
        "lm_head.weight": ours.head.weight,
    }
    for i, block in enumerate(ours.blocks):
        own = {name: value.detach() for name, value in block.named_parameters()}
        q, k, v = own["attention.qkv.weight"].split([queries, keys, keys])
        gate, up = own["feed_forward.gate_up.weight"].chunk(2)
        names = {
            "self_attn.q_proj": q, "self_attn.k_proj": k, "self_attn.v_proj": v,
            "self_attn.o_proj": own["attention.out.weight"],
            "mlp.gate_proj": gate, "mlp.up_proj": up, "mlp.down_proj": own["feed_forward.down.weight"],
            "input_layernorm": own["attention_norm.weight"],
            "post_attention_layernorm": own["feed_forward_norm.weight"],
        }  # fmt: skip
        weights |= {f"model.layers.{i}.{name}.weight": value for name, value in names.items()}
    peer.load_state_dict(weights)
    return peer


def long_window(config: TrainedConfig) -> Cost:
    """What one window of LONG_WINDOW tokens costs."""
    keep_freed_memory()
    model = _model(config)
    split = RandomTokens(1, LONG_WINDOW + 1, config.model.vocab_size)
    windows = Windows(np.zeros(1, np.int64), np.zeros(1, np.int64), LONG_WINDOW, LONG_WINDOW)
    began = time.perf_counter()
    found = measure_windows(
        model, split, {LONG_WINDOW: (windows,)}, PLAIN, precision="fp32", share=False,
        progress=lambda inputs, loss: None,
    )  # fmt: skip
    loss = float(found[LONG_WINDOW].loss_N.mean(dtype=np.float64))
    return Cost(time.perf_counter() - began, lifetime_peak_mib(), (loss,), LONG_WINDOW)
