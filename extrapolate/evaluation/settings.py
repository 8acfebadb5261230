"""What to evaluate, and how: the arguments of `xt.evaluate`, the flags of `eval-lengths`, and a study's `[evaluate]`.

The command line reads the fields, so slow imports are inside functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from extrapolate import specs
from extrapolate.errors import UserError, about
from extrapolate.names import ALL, AS_TRAINED, DEFAULT_PROTOCOLS, LEFT_OUT, PRECISIONS, WITHOUT_OWN
from extrapolate.specs.settings import Flag, settings_of

if TYPE_CHECKING:
    from extrapolate.data.probes.base import Probe
    from extrapolate.data.store import Split, Store
    from extrapolate.evaluation.protocols.base import Layout, Protocol

_what, _text, _runs, _machine = (partial(Flag, panel=one) for one in ("What to evaluate", "Text", "Runs", "Machine"))


@dataclass(frozen=True)
class OpenedRuns:
    """How runs are opened, and on which device they run."""

    seq_len: Annotated[
        int | None, _runs("with hf: training length L, tokens", usual="as the checkpoint says", least=2)
    ] = None
    trust_code: Annotated[bool, _runs("run Python files that came with the runs; read them first")] = False
    device: Annotated[Literal["auto", "cpu", "cuda"], _machine("auto: a GPU if any", envvar="EXTRAPOLATE_DEVICE")] = (
        "auto"
    )


@dataclass(frozen=True)
class RunsOnText(OpenedRuns):
    """Runs, and the text that they are evaluated on."""

    data: Annotated["str | Path | Store | None", _text("token store", usual="the one of the training")] = None


@dataclass(frozen=True)
class Lengths:
    """The lengths, extensions and text to examine a run with. Factors are N/L."""

    factors: Annotated[tuple[float, ...], _what("lengths as multiples of the training length")] = (1, 2, 4, 8, 16)
    extend: Annotated[
        tuple[str, ...],
        _what(
            f"an extension: pi, yarn:factor=8 + log-n; {ALL}: every one that applies; {WITHOUT_OWN}: leave out the "
            f"run's own; {AS_TRAINED}: no further extension (always included); repeatable",
            whole=True,
        ),
    ] = ()
    split: Annotated[str, _text("the held-out text: test or validation")] = "test"


@dataclass(frozen=True)
class SharedSettings(Lengths):
    """What evaluations on text and on probes share."""

    checkpoint: Annotated[
        Literal["last", "all", "half"],
        _runs("last: the final weights, and half the budget by fixed-target; all: all that were kept; half: only half"),
    ] = "last"
    precisions: Annotated[
        tuple[str, ...], _machine(f"{', '.join(PRECISIONS)}, or several: fp32,int8", name="--precision")
    ] = ("fp32",)


@dataclass(frozen=True)
class TextSettings(SharedSettings):
    """An evaluation on text. `protocols` are specs, such as `windows` or `sliding:stride=16`.

    If max_targets is a number, it lowers the most that a protocol scores (`Protocol.max_targets`), and never raises it.
    A mapping sets the limit of the protocols that it names, with any arguments; its key `all` stands for the number.
    """

    protocols: Annotated[
        tuple[str, ...], _what(f"{{protocols}}, several, or {LEFT_OUT}; repeatable", name="--protocol", none=True)
    ] = DEFAULT_PROTOCOLS
    stride: Annotated[
        int | None,
        _what("tokens by which windows of sliding and yarn move on", usual="L/2; for yarn at most 256", least=1),
    ] = None
    bos: Annotated[bool, _what("begin every window with a beginning-of-text or end-of-text token")] = False
    max_targets: Annotated[
        int | Mapping[str, int] | None,
        _text(
            "limit on a protocol's scored tokens: 4096 lowers the defaults; windows=500000,fixed-target=16384 sets "
            "each",
            usual="{most_targets}",
        ),
    ] = None
    keep_losses: Annotated[bool, _text("also keep the loss of every scored token")] = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From settings by name; stride and bos become arguments of the protocols. Raises UserError if one is wrong."""
        from extrapolate.evaluation.protocols.base import with_arguments

        made = settings_of(cls, given)
        protocols = with_arguments(made.protocols, made.stride, made.bos)
        return replace(made, protocols=protocols, stride=None, bos=False)

    def most_targets(self) -> dict[str, int]:
        """The limits by protocol; the one under `all` lowers those of the others."""
        given = self.max_targets
        return {} if given is None else dict(given) if isinstance(given, Mapping) else {ALL: given}

    def limit_of(self, protocol: "Protocol | type[Protocol]") -> int:
        """The most targets that a protocol scores."""
        most = self.most_targets()
        return most.get(protocol.name, min(protocol.max_targets, most.get(ALL, protocol.max_targets)))

    def layout(self, protocol: str, split: "Split", seq_len: int) -> "Layout":
        """The windows of one protocol, without the token of `bos`."""
        from extrapolate.evaluation.protocols.base import lengths_of, parse_protocol

        asked = parse_protocol(protocol)
        return asked.layout(split.lengths, seq_len, lengths_of(self.factors, seq_len), self.limit_of(asked))

    def check_max_targets(self, seq_len: int) -> None:
        """Raises UserError if a limit on the scored tokens is out of range, would change nothing, or holds nothing."""
        from extrapolate.evaluation.protocols.base import parse_protocol, protocols

        limits = self.most_targets()
        for most in limits.values():
            if not 0 < most <= specs.LARGEST_WHOLE:
                raise UserError(f"`max_targets` must be from 1 to {specs.LARGEST_WHOLE}, not {specs.truncate(most)}")
        evaluated = dict.fromkeys(parse_protocol(protocol).name for protocol in self.protocols)
        alone = limits.pop(ALL, None)
        for protocol in limits:
            if protocol not in protocols.names():
                raise UserError(
                    f"`max_targets`: unknown protocol '{protocol}'; {specs.did_you_mean(protocol, protocols.names())}"
                )
            if protocol not in evaluated:
                raise UserError(f"`max_targets` names {protocol}, which is not evaluated: name it in `protocols` too")
        defaults = {name: protocols[name].max_targets for name in evaluated if name not in limits}
        if alone is not None and defaults and alone > max(defaults.values()):
            told = ", ".join(f"{name} {default}" for name, default in defaults.items())
            raise UserError(
                f"`max_targets={alone}` is above every default ({told}), and a number alone only lowers them; to raise "
                f"them write `max_targets={dict.fromkeys(defaults, alone)}`"
            )
        with about("factors"):
            self._check_holds(seq_len)

    def pieces(self, seq_len: int) -> dict[str, tuple[str, int]]:
        """What each protocol lays out whole, such as `span of 64 tokens`, and its targets.

        No text is needed: a document without end is laid out in a single target, which protocols refuse.
        """
        import numpy as np

        from extrapolate.evaluation.protocols.base import TooFewTargetsError, lengths_of, parse_protocol

        found = {}
        for asked in map(parse_protocol, self.protocols):
            try:
                asked.layout(np.array([2**40]), seq_len, lengths_of(self.factors, seq_len), 1)
            except TooFewTargetsError as error:
                found[asked.name] = error.piece, error.least
        return found

    def _check_holds(self, seq_len: int) -> None:
        """Raises UserError, with the limits that would do, if a protocol's pieces are larger than its limit."""
        from extrapolate.evaluation.protocols.base import protocols

        pieces = self.pieces(seq_len)
        limits = {name: self.limit_of(protocols[name]) for name in pieces}
        wrong = {name: one for name, one in pieces.items() if one[1] > limits[name]}
        if wrong:
            given, least = self.most_targets(), {name: targets for name, (_, targets) in wrong.items()}
            lowers = given.keys() == {ALL} and all(most <= protocols[name].max_targets for name, most in least.items())
            enough = max(least.values()) if lowers else given | least
            told = [f"{name}: the limit of {limits[name]} targets holds no {what}" for name, (what, _) in wrong.items()]
            raise UserError(f"{'; '.join(told)}: give `max_targets={enough}`, or smaller `factors`")


@dataclass(frozen=True)
class EvaluationSettings(TextSettings):
    """An evaluation on text, on probes, or both."""

    probes: Annotated[
        tuple[str, ...],
        _what(
            f"{{probes}}, with arguments such as mqar:pairs=8; several, all, or {LEFT_OUT}; repeatable",
            whole=True,
            none=True,
        ),
    ] = ()
    trials: Annotated[int, _what("windows for each probe, length and depth", name="--probe-trials")] = 64

    def halfway(self) -> Self:
        """What is evaluated of the model of half the budget, unless all checkpoints are: what a report compares."""
        from extrapolate.evaluation.protocols.base import isolates

        few = tuple(protocol for protocol in self.protocols if isolates(protocol) and self.checkpoint == "last")
        return replace(self, checkpoint="half", protocols=few, extend=(), probes=(), keep_losses=False)

    def parsed_probes(self) -> "tuple[Probe, ...]":
        """The probes. Raises UserError if one is unknown."""
        from extrapolate.data.probes.base import parse_probes

        return parse_probes(",".join(self.probes)) if self.probes else ()
