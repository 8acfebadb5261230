"""Synthetic text as a source."""

from extrapolate.data.sources.base import NamedSource, sources
from extrapolate.data.synthetic.base import Process, parse_process, processes
from extrapolate.errors import UserError

PREFIX = "synthetic:"


@sources.register("synthetic")
class Synthetic(NamedSource):
    """Text from a random process whose best possible prediction is known: `synthetic:markov:states=6`.

    NAME is a process, with arguments after another colon. Every state is a token.
    """

    argument = "NAME"

    @classmethod
    def open(cls, argument: str, text_field: str) -> Process:
        if not argument.strip():
            known = ", ".join(f"{PREFIX}{name}" for name in processes.names())
            raise UserError(f"{PREFIX} names no process: expected one of {known}")
        return parse_process(argument)
