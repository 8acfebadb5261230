"""Every kind of measurement as rows of one table, each kind with fewer variants or less work than alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from extrapolate.benchmark import evaluation, peers, startup, tokenizing, training

EVALUATED = "tiny"  # the preset whose evaluation is measured


@dataclass(frozen=True)
class Row:
    """One line of the table. A speed is in `unit`, which is a rate, or `s` where less is better.

    The ratios say how many times as fast it is as the floor, and as the peer that does the same work. None: there is no
    such figure. An unsure one is None too, and `disturbed` says so: other programs took part of the time.
    """

    what: str
    who: str
    mode: str
    speed: float
    unit: str
    of_floor: float | None = None
    of_peer: float | None = None
    busy_speed: float | None = None
    peak_mib: float | None = None
    disturbed: bool = False


@dataclass(frozen=True)
class Settings:
    """What the parts measure. `beside`: how many busy programs compute beside a second measurement of each."""

    presets: tuple[str, ...]
    seq_len: int | None
    compiled: bool
    seconds: float
    tokens: int
    protocols: tuple[str, ...]
    precisions: tuple[str, ...]
    source: str
    megabytes: float
    start_rounds: int
    beside: int


def parts(settings: Settings) -> dict[str, Callable[[], Iterator[Row]]]:
    """The parts of the table by name, in its order; a part gives each row as soon as it is measured."""
    trained = {f"training {preset}": lambda preset=preset: _training(preset, settings) for preset in settings.presets}
    return {
        **trained,
        "evaluation": lambda: _evaluation(settings),
        "tokenising": lambda: _tokenizing(settings),
        "start-up": lambda: _startup(settings),
    }


def _training(preset: str, settings: Settings) -> Iterator[Row]:
    """A preset with dropout is trained with it, as `train` does. The floor has no row: it is in the ratios."""
    config = training.bench_config(preset, settings.seq_len)
    dropout = config.model.dropout > 0
    for group in training.groups(config, peers.installed()["transformers"], settings.compiled):
        if group[0].dropout != dropout:
            continue
        speeds = training.measure(config, group, settings.seconds, settings.beside)
        named = {variant.who: speed for variant, speed in speeds.items()}
        floor, peer = named.pop("floor"), named.get("transformers")
        for who, speed in named.items():
            of_floor = speed.times_as_fast_as(floor)
            of_peer = None if peer is None else speed.times_as_fast_as(peer)
            disturbed = of_floor is None or (peer is not None and of_peer is None)
            mode = [group[0].precision, "compiled" if group[0].compiled else "eager", *(["dropout"] if dropout else [])]
            yield Row(
                f"training {preset}", who, " ".join(mode), speed.tokens_per_s, "tokens/s", of_floor, of_peer,
                speed.busy_tokens_per_s, speed.peak_mib, disturbed=disturbed,
            )  # fmt: skip


def _evaluation(settings: Settings) -> Iterator[Row]:
    """The control is left out: the peers do not compute it."""
    config = training.bench_config(EVALUATED, settings.seq_len)
    there = [peer for peer, found in peers.installed().items() if found]
    variants = evaluation.variants(there, settings.protocols, settings.precisions)
    for mode in dict.fromkeys((variant.protocol, variant.precision) for variant in variants):
        chosen = [v for v in variants if (v.protocol, v.precision) == mode and v.who != "extrapolate and control"]
        costs = dict(evaluation.measure(config, chosen, settings.tokens, settings.beside))
        peer = next((cost.tokens_per_s for variant, cost in costs.items() if variant.who == "plain loop"), None)
        for variant, cost in costs.items():
            yield Row(
                f"evaluation {EVALUATED}", variant.who, " ".join(mode), cost.tokens_per_s, "tokens/s", None,
                None if peer is None else cost.tokens_per_s / peer, cost.busy_tokens_per_s, cost.peak_mib,
            )  # fmt: skip


def _tokenizing(settings: Settings) -> Iterator[Row]:
    """With one process, and with one a core: ours, and the fastest of the peer's. Its `encode_batch` is left out, for
    it also works out each token's place in the text."""
    variants = [variant for variant in tokenizing.variants() if variant.call != "encode_batch"]
    speeds = dict(tokenizing.measure(settings.source, "text", settings.megabytes, variants, settings.beside))
    for count in sorted({variant.processes for variant in variants}):
        of_count = {variant: speed for variant, speed in speeds.items() if variant.processes == count}
        best = {
            who: max(s.mb_per_s for v, s in of_count.items() if v.who == who) for who in ("extrapolate", "datasets")
        }
        for variant, speed in of_count.items():
            if speed.mb_per_s == best[variant.who]:
                mode = f"{count} process{'es' if count > 1 else ''}"
                ratio = speed.mb_per_s / best["datasets"]
                yield Row(
                    "tokenising", variant.who, mode, speed.mb_per_s, "MB/s", None, ratio,
                    speed.busy_mb_per_s, speed.peak_mib,
                )  # fmt: skip


def _startup(settings: Settings) -> Iterator[Row]:
    """The floor is Python alone; the peer of what needs torch is Python that imports it."""
    starts = startup.measure(startup.programs(), settings.start_rounds, settings.beside)
    for program, start in starts.items():
        peer = starts[startup.TORCH] if program in startup.WITH_TORCH else None
        yield Row(
            "start-up", program.who, program.shown, start.median, "s", start.times_as_fast_as(starts[startup.FLOOR]),
            None if peer is None else start.times_as_fast_as(peer), start.busy_median,
        )  # fmt: skip
