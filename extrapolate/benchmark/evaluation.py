"""How fast a five-factor evaluation is here, beside a plain loop and lm-eval: every number of one table from one run.

Each variant runs in a process of its own. All score the same targets of the same random tokens with the same weights
of a tiny model, and their mean losses are compared.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from extrapolate.benchmark import busy, process
from extrapolate.benchmark.training import transformers_llama
from extrapolate.data.store import Split
from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation.losses import BATCH_TOKENS
from extrapolate.evaluation.protocols.base import CONTROL, Layout, Windows, protocols
from extrapolate.evaluation.window_losses import measure as measure_windows
from extrapolate.evaluation.window_losses import prefixes_agree
from extrapolate.machine.allocator import keep_freed_memory
from extrapolate.model.decoder import Model
from extrapolate.runs.config import TrainedConfig

Who = Literal["extrapolate", "extrapolate and control", "plain loop", "lm-eval rolling"]
FACTORS = (1, 2, 4, 8, 16)
DOCUMENTS = 8
LONG_WINDOW = 32_768
ENOUGH_S = 10.0  # what takes less is timed up to three times


@dataclass(frozen=True)
class Variant:
    """What is measured."""

    who: Who
    protocol: str
    precision: str


@dataclass(frozen=True)
class Cost:
    """The median of the seconds for all factors, the process's peak memory in MiB, each factor's mean loss, and how
    many tokens of all factors were scored, the control's left out; and the seconds beside busy programs, where asked.
    """

    seconds: float
    peak_mib: float
    losses: tuple[float, ...]
    tokens: int
    busy_seconds: float | None = None

    @property
    def tokens_per_s(self) -> float:
        """Of the quiet rounds."""
        return self.tokens / self.seconds

    @property
    def busy_tokens_per_s(self) -> float | None:
        """None where nothing was measured beside busy programs."""
        return None if self.busy_seconds is None else self.tokens / self.busy_seconds

    def furthest(self, other: "Cost") -> float:
        """The largest difference in loss at any factor, nats."""
        return max(abs(mine - theirs) for mine, theirs in zip(self.losses, other.losses, strict=True))


def variants(peers: Sequence[str], protocols: Sequence[str], precisions: Sequence[str]) -> list[Variant]:
    """What is compared, as far as the packages that peers need (transformers, lm_eval) are there."""
    ours: list[Who] = ["extrapolate", "extrapolate and control"]
    whose: list[Who] = [*ours, "plain loop"] if "transformers" in peers else ours
    found = [Variant(who, protocol, precision) for protocol in protocols for precision in precisions for who in whose]
    rolling = "lm_eval" in peers and "windows" in protocols and "fp32" in precisions
    return found + ([Variant("lm-eval rolling", "windows", "fp32")] if rolling else [])


def measure(
    config: TrainedConfig, chosen: list[Variant], tokens: int, beside: int = 0
) -> Iterator[tuple[Variant, Cost]]:
    """Measures each variant, one after the other, on `tokens` tokens of `windows`, fewer of the other protocols.

    Then it is measured again beside so many programs that compute all the time.
    """
    for variant in chosen:
        yield variant, process.alone(_measure, config, variant, tokens, beside)


def long_window(config: TrainedConfig) -> Cost:
    """What one window of LONG_WINDOW tokens costs, in a process of its own."""
    return process.alone(_long_window, config)


class RandomTokens(Split):
    """Documents of random tokens, in memory."""

    def __init__(self, documents: int, length: int, vocab_size: int) -> None:
        super().__init__("random", [])
        self.tokens = np.random.default_rng(0).integers(0, vocab_size, documents * (length + 1)).astype(np.int64)
        self.ids = [str(i) for i in range(documents)]
        self.offsets = np.arange(documents + 1) * (length + 1)

    def slice(self, start: int, end: int) -> np.ndarray:
        return self.tokens[start:end]


def _measure(config: TrainedConfig, variant: Variant, tokens: int, beside: int = 0) -> Cost:
    prepare = {"plain loop": _plain_loop, "lm-eval rolling": _lm_eval}.get(variant.who, _ours)
    prepare(config, variant, *_work(config, variant, least_tokens(config)))()  # the first calls of a kind are slower
    split, layout = _work(config, variant, tokens)
    score = prepare(config, variant, split, layout)
    seconds, losses = _median_seconds(score)
    peak = process.peak_memory_mib()
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


def least_tokens(config: TrainedConfig) -> int:
    """The fewest tokens that hold a window of every factor."""
    return DOCUMENTS * (FACTORS[-1] * config.training.seq_len + 1)


def _work(config: TrainedConfig, variant: Variant, tokens: int) -> tuple[Split, Layout]:
    """What is to be scored."""
    seq_len = config.training.seq_len
    lengths = [factor * seq_len for factor in FACTORS]
    split = RandomTokens(DOCUMENTS, tokens // DOCUMENTS + 1, config.model.vocab_size)
    protocol = protocols[variant.protocol]()
    most = max(int(tokens * protocol.benchmark_share), lengths[-1])
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
            progress=lambda inputs: None,
        )  # fmt: skip
        return tuple(float(found[length].loss_N.mean(dtype=np.float64)) for length in layout.rows)

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
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

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
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

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


def _long_window(config: TrainedConfig) -> Cost:
    keep_freed_memory()
    model = _model(config)
    split = RandomTokens(1, LONG_WINDOW + 1, config.model.vocab_size)
    windows = Windows(np.zeros(1, np.int64), np.zeros(1, np.int64), LONG_WINDOW, LONG_WINDOW)
    began = time.perf_counter()
    found = measure_windows(
        model, split, {LONG_WINDOW: (windows,)}, PLAIN, precision="fp32", share=False,
        progress=lambda inputs: None,
    )  # fmt: skip
    loss = float(found[LONG_WINDOW].loss_N.mean(dtype=np.float64))
    return Cost(time.perf_counter() - began, process.peak_memory_mib(), (loss,), LONG_WINDOW)
