"""Measurements of every kind as rows of one table: what `bench --all` and `bench --json` print."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from extrapolate.benchmark import encodings, evaluation, startup, tokenizing, training


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


def of_training(preset: str, speeds: Mapping[training.Variant, training.Speed]) -> Iterator[Row]:
    """Of one group of variants; the peer is transformers."""
    named = {variant.who: speed for variant, speed in speeds.items()}
    floor, peer = named["floor"], named.get("transformers")
    for variant, speed in speeds.items():
        of_floor = speed.times_as_fast_as(floor)
        of_peer = None if peer is None else speed.times_as_fast_as(peer)
        disturbed = of_floor is None or (peer is not None and of_peer is None)
        how = "" if variant.who == "floor" else "compiled" if variant.compiled else "eager"
        mode = [variant.precision, how, "dropout" if variant.dropout else ""]
        yield Row(
            f"training {preset}", variant.who, " ".join(filter(None, mode)), speed.tokens_per_s, "tokens/s", of_floor,
            of_peer, speed.busy_tokens_per_s, speed.peak_mib, disturbed=disturbed,
        )  # fmt: skip


def of_evaluation(preset: str, costs: Mapping[evaluation.Variant, evaluation.Cost]) -> Iterator[Row]:
    """The peer of each mode is the plain loop."""
    for variant, cost in costs.items():
        peer = costs.get(evaluation.Variant("plain loop", variant.protocol, variant.precision))
        yield Row(
            f"evaluation {preset}", variant.who, f"{variant.protocol} {variant.precision}", cost.tokens_per_s,
            "tokens/s", None, None if peer is None else cost.tokens_per_s / peer.tokens_per_s, cost.busy_tokens_per_s,
            cost.peak_mib,
        )  # fmt: skip


def of_tokenizing(speeds: Mapping[tokenizing.Variant, tokenizing.Speed]) -> Iterator[Row]:
    """The peer is the fastest mode of datasets with as many processes."""
    for variant, speed in speeds.items():
        peers = [s.mb_per_s for v, s in speeds.items() if v.who == "datasets" and v.processes == variant.processes]
        mode = f"{variant.processes} process{'es' if variant.processes > 1 else ''}"
        if variant.call:
            mode += f", {variant.call}, {variant.batch} documents"
        yield Row(
            "tokenising", variant.who, mode, speed.mb_per_s, "MB/s", None, speed.mb_per_s / max(peers),
            speed.busy_mb_per_s, speed.peak_mib,
        )  # fmt: skip


def of_startup(starts: Mapping[startup.Program, startup.Start]) -> Iterator[Row]:
    """The floor is Python alone; the peer of what needs torch is Python that imports it."""
    for program, start in starts.items():
        peer = starts[startup.TORCH] if program in startup.WITH_TORCH else None
        yield Row(
            "start-up", program.who, program.shown, start.median, "s", start.times_as_fast_as(starts[startup.FLOOR]),
            None if peer is None else start.times_as_fast_as(peer), start.busy_median,
        )  # fmt: skip


def of_encodings(preset: str, speeds: Mapping[str, encodings.EncodingSpeed]) -> Iterator[Row]:
    """The peer of each encoding is rope. There is no row for a length that an encoding does not reach."""
    rope = speeds["rope"]
    for name, speed in speeds.items():
        yield Row(
            f"training {preset}", name, "eager", speed.training, "tokens/s",
            of_peer=speed.training / rope.training, peak_mib=speed.training_mib,
        )  # fmt: skip
        for factor, rate in speed.evaluation.items():
            ropes = rope.evaluation[factor]
            if rate is not None and ropes is not None:
                yield Row(
                    f"evaluation {preset}", name, f"{factor}x fp32", rate, "tokens/s",
                    of_peer=rate / ropes, peak_mib=speed.evaluation_mib,
                )  # fmt: skip
