"""Every kind of measurement as rows of one table, each kind with fewer variants or less work than alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from extrapolate.benchmark import evaluation, peers, rows, startup, tokenizing, training
from extrapolate.benchmark.rows import Row

EVALUATED = "tiny"  # the preset whose evaluation is measured
WHOSE = ("extrapolate", "datasets")  # tokenising is measured


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
        yield from (row for row in rows.of_training(preset, speeds) if row.who != "floor")


def _evaluation(settings: Settings) -> Iterator[Row]:
    """The control is left out: the peers do not compute it."""
    config = training.bench_config(EVALUATED, settings.seq_len)
    there = [peer for peer, found in peers.installed().items() if found]
    variants = evaluation.variants(there, settings.protocols, settings.precisions)
    for mode in dict.fromkeys((variant.protocol, variant.precision) for variant in variants):
        chosen = [v for v in variants if (v.protocol, v.precision) == mode and v.who != "extrapolate and control"]
        yield from rows.of_evaluation(
            EVALUATED, dict(evaluation.measure(config, chosen, settings.tokens, settings.beside))
        )


def _tokenizing(settings: Settings) -> Iterator[Row]:
    """With one process, and with one a core: ours, and the fastest of the peer's. Its `encode_batch` is left out, for
    it also works out each token's place in the text."""
    variants = [variant for variant in tokenizing.variants() if variant.call != "encode_batch"]
    speeds = dict(tokenizing.measure(settings.source, "text", settings.megabytes, variants, settings.beside))
    for count in sorted({variant.processes for variant in variants}):
        of_count = {variant: speed for variant, speed in speeds.items() if variant.processes == count}
        best = [max((v for v in of_count if v.who == who), key=lambda v: of_count[v].mb_per_s) for who in WHOSE]
        for row in rows.of_tokenizing({variant: of_count[variant] for variant in best}):
            yield replace(row, mode=row.mode.partition(",")[0])


def _startup(settings: Settings) -> Iterator[Row]:
    yield from rows.of_startup(startup.measure(startup.programs(), settings.start_rounds, settings.beside))
